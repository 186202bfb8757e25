"""The parts of training, one by one; test_loop.py has the whole."""

from itertools import pairwise

import pytest
import torch
from reference import tiny
from torch import nn

from andrea.config import OptimConfig, override
from andrea.model import Transformer
from andrea.presets import preset
from andrea.training import plan, start
from andrea.training.optim import moments, optimizer_for, set_moments
from andrea.training.schedule import learning_rate, rate
from andrea.training.step import train_step

COSINE = OptimConfig(lr=1e-3, schedule="cosine", warmup=0.1, floor=0.1)
WSD = OptimConfig(lr=1e-3, warmup=0.1, decay=0.4, floor=0.1)


def test_cosine_passes_through_its_middle():
    assert learning_rate(55, 100, COSINE) == pytest.approx(5.5e-4, rel=1e-12)  # halfway from step 10 to 100: (1e-3 + 1e-4) / 2


def test_wsd_warms_up_stays_and_decays():
    rates = [learning_rate(step, 100, WSD) for step in range(100)]
    assert rates[:10] == pytest.approx([1e-4 * (i + 1) for i in range(10)])
    assert rates[10:60] == [1e-3] * 50
    falls = {round(a - b, 12) for a, b in pairwise(rates[59:])}
    assert len(falls) == 1  # a straight line
    assert rates[99] == pytest.approx(1e-4 + 9e-4 / 41)  # one such fall above the floor, which step 100 would have


def test_a_run_that_is_made_longer_has_no_jump_in_its_rate():
    """Warm-up 10, end 100, peak 1e-3, floor 1e-4; at step 55 the end becomes 200."""
    c = OptimConfig(lr=1e-3, schedule="cosine", warmup=0.1, floor=0.1)
    legs = ((0, 100, True), (55, 200, False))
    rates = [rate(step, legs, c) for step in range(200)]
    assert rates[:55] == [learning_rate(step, 100, c) for step in range(55)]
    assert rates[55] == pytest.approx(5.5e-4, rel=1e-12)
    assert max(b - a for a, b in pairwise(rates[54:])) <= 0
    assert rates[199] == pytest.approx(learning_rate(199, 200, c), rel=1e-3)
    warm = [rate(step, ((0, 100, True), (100, 200, True)), c) for step in range(200)]
    assert warm[100:] == warm[:100]
    twice = [rate(step, (*legs, (60, 300, False)), c) for step in range(300)]
    assert twice[:60] == rates[:60]
    assert twice[60] == rates[60]


def test_a_stable_rate_stays_until_the_new_decay():
    rates = [rate(step, ((0, 100, True), (50, 200, False)), WSD) for step in range(200)]
    assert rates[10:120] == [1e-3] * 110
    assert rates[121] < 1e-3
    early = [rate(step, ((0, 100, True), (4, 200, False)), WSD) for step in range(200)]
    assert early[:10] == rates[:10]  # the warm-up goes on
    assert early[10:120] == [1e-3] * 110


@pytest.mark.parametrize(("steps", "warmup"), [(16, 8), (40, 10), (100, 10), (1000, 20)])
def test_a_short_run_warms_up_too(steps, warmup):
    rates = [learning_rate(step, steps, OptimConfig(lr=1.0, warmup=0.02, decay=0.0)) for step in range(steps)]
    assert rates.index(1.0) == warmup - 1
    assert learning_rate(0, steps, OptimConfig(lr=1.0, warmup=0.0, decay=0.0)) == 1.0


@pytest.mark.parametrize("c", [COSINE, WSD, OptimConfig(decay=0.0), OptimConfig(warmup=0.0, decay=1.0), OptimConfig(warmup=1.0, decay=0.0)])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 100])
def test_the_learning_rate_is_above_0_and_never_above_its_peak(c, steps):
    assert all(0 < learning_rate(step, steps, c) <= c.lr for step in range(steps))


@pytest.mark.parametrize(("rule", "hidden"), [("adamw", 0.99), ("muon", 0.998)])
def test_decay_holds_for_matrices_and_not_for_vectors(rule, hidden):
    model = Transformer(tiny())
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
            p.grad = torch.zeros_like(p)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer_for(model, OptimConfig(name=rule, lr=0.1, matrix_lr=0.02, weight_decay=0.1)).step()
    for name, p in model.named_parameters():
        wanted = before[name] * (1.0 if p.ndim < 2 else hidden if name.startswith("blocks.") else 0.99)  # 1 - rate * weight_decay
        torch.testing.assert_close(p.detach(), wanted, rtol=1e-6, atol=0, msg=name)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_in_the_optimizer_once(tied):
    model = Transformer(tiny(tied=tied))
    held = [p for group in optimizer_for(model, OptimConfig()).param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))


def random_batch(rows, seed=0, context=16, vocab=61):
    ids = torch.randint(vocab, (rows, context + 1), generator=torch.Generator().manual_seed(seed))
    return ids[:, :-1], ids[:, 1:]


def gradients(model, micro_batches):
    class Keep(torch.optim.SGD):
        def step(self, closure=None):
            self.kept = [p.grad.clone() for group in self.param_groups for p in group["params"]]

    parameters = list(model.parameters())
    optimizer = Keep(parameters, lr=0.0)
    loss, norm = train_step(model, parameters, optimizer, micro_batches, 0.0, 0.0)
    return loss, norm, optimizer.kept


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(rows):
    torch.manual_seed(0)
    model = Transformer(tiny()).double()  # in float64 the order of the sums leaves 1e-15
    ids, targets = random_batch(6)
    whole = gradients(model, [(ids, targets)])
    parts = gradients(model, list(zip(ids.split(rows), targets.split(rows), strict=True)))
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)


def test_parts_with_unequal_numbers_of_targets_count_by_target():
    """Losses 1, 2, 3 in one part and 6 in the other: the mean is 3, not the mean of the means 4."""
    weight = nn.Parameter(torch.ones(()))

    def losses(ids, targets):
        return ids.float() * weight * (targets != -100)

    part = lambda values, counted: (torch.tensor([values]), torch.tensor([[0 if c else -100 for c in counted]]))
    micro = [part([1, 2, 3], [1, 1, 1]), part([6, 9, 9], [1, 0, 0])]
    optimizer = torch.optim.SGD([weight], lr=1.0)
    loss, norm = train_step(losses, [weight], optimizer, micro, 1.0, 0.0)
    assert loss.item() == 3.0
    assert norm.item() == 3.0
    assert weight.item() == 1.0 - 3.0


def test_the_loss_shown_is_the_mean_over_parts_and_not_divided_again():
    weight = nn.Parameter(torch.ones(()))
    micro = [(torch.full((1, 1), value), torch.zeros(1, 1, dtype=torch.long)) for value in (1, 2, 3, 4)]
    loss, _ = train_step(lambda ids, targets: ids * weight, [weight], torch.optim.SGD([weight], lr=0.0), micro, 0.0, 0.0)
    assert loss.item() == 2.5


def test_a_long_gradient_is_cut_to_the_clip_and_its_own_norm_told():
    weight = nn.Parameter(torch.zeros(2))
    ids = torch.tensor([[3.0, 4.0]])
    optimizer, targets = torch.optim.SGD([weight], lr=1.0), torch.zeros(1, 2, dtype=torch.long)
    _, norm = train_step(lambda ids, targets: ids * weight, [weight], optimizer, [(ids, targets)], 1.0, 0.5)
    assert norm.item() == pytest.approx(2.5)  # (3, 4) / 2 targets
    assert weight.detach().norm().item() == pytest.approx(0.5, rel=1e-5)


def test_adamw_steps_as_torchs_own():
    torch.manual_seed(0)
    model, twin = Transformer(tiny()), Transformer(tiny())
    twin.load_state_dict(model.state_dict())
    c = OptimConfig(name="adamw", lr=1e-2, weight_decay=0.1)
    ours = optimizer_for(model, c)
    vectors, matrices = ([p for p in twin.parameters() if (p.ndim < 2) == short] for short in (True, False))
    groups = [{"params": vectors, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.1}]
    theirs = torch.optim.AdamW(groups, lr=c.lr, betas=(c.beta1, c.beta2), eps=c.eps, fused=True)
    for seed in range(3):
        for m, optimizer in ((model, ours), (twin, theirs)):
            train_step(m, list(m.parameters()), optimizer, [random_batch(2, seed=seed)], c.lr, 1.0)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_moments_come_back_as_they_were(name):
    torch.manual_seed(0)
    model = Transformer(tiny())
    optimizer = optimizer_for(model, OptimConfig(name=name))
    step = lambda o, m: train_step(m, list(m.parameters()), o, [random_batch(2, seed=1)], 1e-2, 1.0)
    step(optimizer, model)
    saved = {name: tensor.clone() for name, tensor in moments(model, optimizer).items()}
    twin = Transformer(tiny())
    twin.load_state_dict(model.state_dict())
    again = optimizer_for(twin, OptimConfig(name=name))
    set_moments(twin, again, saved)
    step(optimizer, model)
    step(again, twin)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_moments_that_are_absent_or_unknown_are_refused():
    model = Transformer(tiny())
    optimizer = optimizer_for(model, OptimConfig())
    train_step(model, list(model.parameters()), optimizer, [random_batch(2)], 1e-2, 1.0)
    whole = {name: tensor.clone() for name, tensor in moments(model, optimizer).items()}
    set_moments(model, optimizer, whole)
    name = "exp_avg.token_embed.weight"
    for damage in ({}, {**whole, name: torch.zeros(3)}, {**whole, name: whole[name].double()}):
        with pytest.raises(ValueError, match=rf"{name} is not there as float32 of \(61, 32\)"):
            set_moments(model, optimizer, damage)
    with pytest.raises(ValueError, match="parameters that the model lacks"):
        set_moments(model, optimizer, {"exp_avg.nobody": torch.zeros(1)})


@pytest.mark.parametrize(("batch_tokens", "rows"), [(4096, 16), (65_536, 16), (1024 * 67, 4), (256, 1), (256 * 67, 1)])
def test_a_micro_batch_divides_the_batch(batch_tokens, rows):
    config = override(preset("andrea-1m"), f"batch_tokens={batch_tokens}")
    assert plan.micro_batch_rows(config, "cpu", "float32", None) == rows
    assert config.rows % rows == 0


def test_a_micro_batch_is_what_the_memory_holds():
    config = override(preset("andrea-4m"), "batch_tokens=16384", "steps=10")
    needed = lambda rows: sum(plan.memory_needed(config, rows, "cpu", "float32").values())
    assert plan.micro_batch_rows(config, "cpu", "float32", needed(16)) == 16
    assert plan.micro_batch_rows(config, "cpu", "float32", needed(16) - 1) == 8
    assert plan.micro_batch_rows(config, "cpu", "float32", needed(1)) == 1
    with pytest.raises(
        plan.TooLittleMemory, match=r"too little memory: 1 of 256 tokens at a time takes .*weights 19.* and there is .*a shorter context$"
    ):
        plan.micro_batch_rows(config, "cpu", "float32", needed(1) - 1)
    asked = override(config, "micro_batch=32")
    with pytest.raises(plan.TooLittleMemory, match=r"32 of 256 tokens .*micro_batch=1$"):
        plan.micro_batch_rows(asked, "cpu", "bfloat16", needed(1))
    with pytest.raises(plan.TooLittleMemory, match=r"micro_batch=1, bfloat16$"):
        plan.micro_batch_rows(asked, "cpu", "float32", needed(1))


def test_recomputing_takes_less_and_is_the_last_resort(monkeypatch):
    config = override(preset("andrea-4m"), "batch_tokens=4096", "micro_batch=16", "steps=10")
    kept, again = (sum(plan.memory_needed(config, 16, "cpu", "float32", "cpu", recompute).values()) for recompute in (False, True))
    assert again < 0.9 * kept
    settled = {}
    for memory in (2 * kept, kept, kept - 1, again):
        monkeypatch.setattr(start, "device_memory_bytes", lambda device, memory=memory: memory)
        settled[memory] = resolved = {"device": "cpu", "dtype": "float32", "kernels": "cpu"}
        start.settle_pass(config, resolved)
    assert [r["recompute"] for r in settled.values()] == [False, False, True, True]
    monkeypatch.setattr(start, "device_memory_bytes", lambda device: again - 1)
    with pytest.raises(plan.TooLittleMemory):
        start.settle_pass(config, {"device": "cpu", "dtype": "float32", "kernels": "cpu"})


def test_measuring_the_speed_takes_a_twin_of_the_weights():
    timed, counted = (plan.memory_needed(override(preset("andrea-4m"), change), 1, "cpu", "float32") for change in ("minutes=1", "steps=1"))
    assert (timed["twin"], counted["twin"]) == (timed["weights"], 0)
    assert plan.memory_needed(preset("andrea-4m"), 1, "cuda", "float32")["program"] == 0


def test_a_budget_holds_the_steps_that_fit():
    assert plan.steps_in(60, 0.5, 10) == 100
    assert plan.steps_in(60, 0.5, 100) == 60  # overhead never takes more than half
    assert plan.steps_in(60, 1000, 0) == 1
