"""What insight says of a model, against plain torch, against Hugging Face, and on models built by hand whose answers are known."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from reference import hf_gpt2, random_ids, randomise, tiny, worst
from safetensors.torch import load_file
from torch import Tensor

import andrea
from andrea.checkpoint import set_weights
from andrea.config import ModelConfig
from andrea.insight import edit, flow, lens, story
from andrea.insight.trace import addresses, stations, sublayers, trace
from andrea.kernels import CPU, TORCH
from andrea.model import Transformer
from andrea.model.transformer import BLOCKS

pytestmark = pytest.mark.usefixtures("one_thread")
VARIANTS = list(BLOCKS)
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-9}  # of the largest value: some tens of roundings through two blocks
OPTIONS = [
    {},
    {"tied": False},
    {"activation": "swiglu"},
    {"activation": "relu", "bias": False},
    {"positions": "rotary"},
    {"n_layer": 1, "n_head": 1},
]


def built(dtype: torch.dtype = torch.float64, kernels=TORCH, **changes) -> Transformer:
    return randomise(Transformer(tiny(**changes), kernels)).to(dtype).eval()


def hooks(model: Transformer) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def normed(x: Tensor, norm: torch.nn.Module) -> Tensor:
    """LayerNorm in plain torch, statistics from x itself."""
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    return norm.gamma * (x - mean) / torch.sqrt(var + 1e-5) + norm.beta


# The trace


@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_traced_logits_are_the_untraced_ones_bit_for_bit(norm, residual):
    model = built(torch.float32, norm=norm, residual=residual)
    ids = random_ids(model.config, 2, 13)
    assert torch.equal(trace(model, ids).logits, model(ids).detach())
    assert hooks(model) == 0


@pytest.mark.parametrize("kernels", [TORCH, CPU])
def test_a_trace_leaves_modes_gradients_and_random_numbers_alone(kernels):
    model = randomise(Transformer(tiny(dropout=0.5), kernels)).train()
    model.blocks[0].mlp.eval()
    before, modes = torch.random.get_rng_state(), [m.training for m in model.modules()]
    seen = trace(model, random_ids(model.config, 2, 9), gradient=lambda logits: logits.sum())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [m.training for m in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(seen.logits, trace(model, seen.ids).logits), "dropout was on"


def test_hooks_are_gone_and_modes_restored_after_an_exception():
    model = built().train()
    ids = random_ids(model.config, 1, 5)
    plain = trace(model, ids).logits

    def breaks(logits):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        trace(model, ids, gradient=breaks)
    with pytest.raises(RuntimeError, match="on purpose"), edit.edited(model, {"blocks.0.attn": breaks}):
        model(ids)
    with pytest.raises(ValueError, match="do not fit the context"):
        trace(model, random_ids(model.config, 1, 17))
    assert hooks(model) == 0 and model.training and model.blocks[1].mlp.training
    assert torch.equal(trace(model, ids).logits, plain)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_the_stream_is_rebuilt_from_the_embedding_and_the_writes(norm, residual, dtype, error):
    model = built(dtype, norm=norm, residual=residual)
    seen = trace(model, random_ids(model.config, 2, 11))
    x = seen["token_embed"] + seen["position_embed"]
    for name, state in zip(sublayers(2), stations(2)[1:], strict=True):
        x = seen[name] + (x if residual else 0)
        x = normed(x, model.get_submodule(f"{name}_norm")) if norm == "post" else x
        assert worst(x, seen[state]) <= error, name
    last = normed(x, model.final_norm) if norm == "pre" else x
    assert worst(last @ model.unembed.weight.T, seen.logits) <= error


@pytest.mark.parametrize("kernels", [TORCH, CPU])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_patterns_sum_to_one_look_back_only_and_give_what_attention_gave(positions, kernels):
    model = built(torch.float32, kernels, positions=positions)
    seen = trace(model, random_ids(model.config, 3, 16))
    for i, block in enumerate(model.blocks):
        A = seen[f"blocks.{i}.attn.pattern"]
        assert A.shape == (3, 2, 16, 16)
        assert (A.sum(-1) - 1).abs().max() <= 1e-6
        assert A.triu(1).abs().max() == 0
        z = (A @ seen[f"blocks.{i}.attn.v"]).transpose(1, 2).flatten(-2)
        assert worst(z @ block.attn.out.weight.T + block.attn.out.bias, seen[f"blocks.{i}.attn"]) <= 1e-5
        heads = seen[f"blocks.{i}.attn.heads"]
        assert worst(heads.sum(1) + block.attn.out.bias, seen[f"blocks.{i}.attn"]) <= 1e-5
        assert torch.equal(seen[f"blocks.{i}.attn.pattern.1"], A[:, 1])
        assert worst(seen[f"blocks.{i}.attn.heads.1"], heads[:, 1]) <= 1e-6


def test_activations_and_patterns_equal_hugging_faces():
    config = tiny(context=64, d_model=48, n_head=3, n_layer=3)
    model = randomise(Transformer(config)).eval()
    ids = random_ids(config, 2, 42)
    seen, theirs = trace(model, ids), hf_gpt2(config, model)(ids, output_hidden_states=True, output_attentions=True)
    states = ["embed", "blocks.0", "blocks.1", "final_norm"]  # theirs ends with the normed state
    for name, state in zip(states, theirs.hidden_states, strict=True):
        assert worst(seen[name], state) <= 1e-5, name
    for i, A in enumerate(theirs.attentions):
        assert worst(seen[f"blocks.{i}.attn.pattern"], A) <= 1e-5


def test_activations_lens_and_attribution_equal_transformer_lenses():
    """tests/goldens/make.py made them; theirs are float32, and a logit here is a sum of a few hundred products near 1."""
    stored = load_file(Path(__file__).parent / "goldens" / "transformer_lens.safetensors")
    golden = {name.removeprefix("golden."): t for name, t in stored.items() if name.startswith("golden.")}
    model = Transformer(ModelConfig(vocab_size=31, context=12, n_layer=2, n_head=2, d_model=16))
    with torch.no_grad():
        set_weights(model, {name: t for name, t in stored.items() if not name.startswith("golden.")})
    seen, near = trace(model, golden.pop("ids")), {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(seen.logits, golden.pop("logits"), **near)
    looked = torch.stack([lens.lens(model, state) for state in seen.stream().values()])
    torch.testing.assert_close(looked, golden.pop("lens"), **near)
    parts = lens.attribute(seen, -1, [int(golden.pop("answer"))])
    sums = [
        parts.of(name) for name in ("token_embed", "position_embed", *(f"blocks.{i}.{kind}" for i in (0, 1) for kind in ("attn", "mlp")))
    ]
    torch.testing.assert_close(torch.cat(sums).float(), golden.pop("attribution"), **near)
    heads = [parts.of(f"blocks.{i}.attn.heads.{head}") for i in (0, 1) for head in (0, 1)]
    torch.testing.assert_close(torch.cat(heads).float(), golden.pop("attribution_of_heads"), **near)
    assert len(golden) == 15  # embed, and seven addresses of two blocks
    for address, wanted in golden.items():
        torch.testing.assert_close(seen[address], wanted, **near)


def test_one_head_and_one_site_keep_nothing_else():
    model = built(context=64, n_head=4)
    ids = random_ids(model.config, 1, 64)
    whole = trace(model, ids)
    seen = trace(model, ids, "blocks.1.attn.pattern.3")
    assert set(seen.kept) == {"blocks.1.attn.q.3", "blocks.1.attn.k.3"}
    assert sum(t.untyped_storage().nbytes() for t in seen.kept.values()) == 2 * 64 * 8 * 8  # q and k, T, K, float64
    assert torch.equal(seen["blocks.1.attn.pattern.3"], whole["blocks.1.attn.pattern.3"])
    assert set(trace(model, ids, ["blocks.*.attn"]).kept) == {"blocks.0.attn", "blocks.1.attn"}
    with pytest.raises(ValueError, match=r"'blocks\.0\.mlp' was not captured; name it in sites"):
        seen["blocks.0.mlp"]
    with pytest.raises(ValueError, match="no gradient"):
        seen.gradient("blocks.1.attn.q.3")


def test_an_address_or_id_that_is_not_there_is_refused_with_the_nearest():
    model = built()
    with pytest.raises(ValueError, match=r"no 'blocks\.0\.atn'; did you mean 'blocks\.0\.attn'"):
        trace(model, [1, 2], "blocks.0.atn")
    with pytest.raises(ValueError, match="asks for head 2; the model has 0 to 1"):
        trace(model, [1, 2], "blocks.0.attn.q.2")
    with pytest.raises(ValueError, match="ids go from 1 to 61; the model knows 0 to 60"):
        trace(model, [1, 61])
    with pytest.raises(ValueError, match=r"wanted whole numbers, \(T,\) or \(B, T\)"):
        trace(model, [])


def test_every_address_can_be_asked_for():
    for changes in ({}, {"activation": "swiglu", "positions": "rotary"}):
        model = built(**changes)
        seen = trace(model, random_ids(model.config, 1, 4))
        for address in addresses(model):
            assert seen[address].isfinite().all(), address


@pytest.mark.parametrize("address", ["embed", "blocks.0.attn.attend", "blocks.0.mid", "blocks.0.mlp.act", "blocks.1.attn.q", "blocks.1"])
def test_gradients_equal_finite_differences(address):
    model = built()
    ids = random_ids(model.config, 1, 7)
    loss = flow.next_token_loss(ids)
    seen = trace(model, ids, [address], gradient=loss)
    at, step = (0, *(0,) * (seen[address].ndim - 3), 2, 3), 1e-6
    values = []
    for sign in (1, -1):

        def nudge(own, sign=sign):
            new = own.clone()
            new[at] += sign * step
            return new

        target, change = (address, nudge) if not address.endswith(".mid") else ("blocks.0.attn", nudge)  # what is added there is felt alike
        with torch.no_grad(), edit.edited(model, {target: change}):
            values.append(loss(model(ids)).item())
    slope = (values[0] - values[1]) / (2 * step)
    assert seen.gradient(address)[at].item() == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_the_gradient_of_one_head_is_its_part_of_the_whole():
    model = built()
    ids, last = random_ids(model.config, 2, 7), lambda logits: logits[:, -1, 5].sum()
    whole = trace(model, ids, gradient=last).gradient("blocks.0.attn.v")
    assert torch.equal(trace(model, ids, "blocks.0.attn.v.1", gradient=last).gradient("blocks.0.attn.v.1"), whole[:, 1])


def test_the_full_context_is_traced():
    model = Transformer(tiny(context=1024)).eval()
    seen = trace(model, random_ids(model.config, 1, 1024))
    told = story.tell(seen)
    assert told["balance_error"] <= 1e-5
    assert len(told["sublayers"][0]["attention"]["heads"][1]["weights"]) == 1024


def test_hooks_fire_while_a_compiled_twin_runs():
    model = built(torch.float32)
    ids = random_ids(model.config, 1, 8)
    compiled = torch.compile(model, backend="eager")
    first = compiled(ids)
    seen = trace(model, ids)
    assert worst(seen.logits, first) <= 1e-6 and "blocks.1.mlp.act" in seen
    assert torch.equal(compiled(ids), first) and hooks(model) == 0


# Lenses and attribution


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_the_last_lens_is_the_models_own_answer(norm, residual, dtype):
    model = built(dtype, norm=norm, residual=residual)
    seen = trace(model, random_ids(model.config, 1, 12))
    assert worst(lens.lens(model, seen[stations(2)[-1]]), seen.logits) <= 1e-6


def test_every_lens_takes_its_own_statistics():
    model = built(torch.float32)
    ids = random_ids(model.config, 1, 12)
    seen = trace(model, ids)
    for name, state in seen.stream().items():
        by_hand = normed(state, model.final_norm) @ model.unembed.weight.T
        assert worst(lens.lens(model, state), by_hand) <= 1e-5, name
        assert worst(lens.lens(model, 10 * state), by_hand) <= 1e-3, name  # epsilon is all that knows the scale


def test_a_reading_is_what_softmax_says():
    model = built()
    seen = trace(model, random_ids(model.config, 1, 12))
    state, final, wanted = seen["blocks.0"][0], seen.logits[0], seen.ids[0]
    found = lens.read(model, state, final, wanted, k=3)
    p = lens.lens(model, state).softmax(-1).detach()
    q = final.softmax(-1)
    assert torch.equal(found.top[:, 0], p.argmax(-1))
    assert worst(found.p, p[range(12), wanted]) <= 1e-5
    assert found.rank.tolist() == [1 + sum(other > row[w] for other in row) for row, w in zip(p, wanted, strict=True)]
    assert worst(found.entropy, -(p * p.log2()).sum(-1)) <= 1e-5
    assert worst(found.kl, (q * (q / p).log()).sum(-1)) <= 1e-5


def test_convergence_is_where_the_top_stays():
    top = torch.tensor([[1, 5, 2], [2, 5, 2], [1, 5, 9], [1, 5, 2], [1, 5, 3]])
    assert lens.convergence(top, torch.tensor([1, 5, 2])).tolist() == [2, 0, 5]


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_the_parts_sum_to_the_logit(norm, residual, changes, dtype):
    model = built(dtype, norm=norm, residual=residual, **changes)
    seen = trace(model, random_ids(model.config, 1, 9))
    for position in (0, -1):
        for centred in (False, True):
            found = lens.attribute(seen, position, range(61), centred=centred)
            assert worst(found.total, found.logits) <= CLOSE[dtype]
            shift = seen.logits[0, position].double().mean() if centred else 0
            assert worst(found.logits, seen.logits[0, position].double() - shift) <= CLOSE[dtype]
    assert (found.undefined == ()) == residual
    if not residual:
        assert found.of("blocks.0.attn") is None and found.undefined[0] == "token_embed"


def test_attribution_is_the_formula_of_the_notes():
    model = built()
    seen = trace(model, random_ids(model.config, 1, 9))
    h, gamma = seen["blocks.1"][0, 4], model.final_norm.gamma
    s = torch.sqrt(h.var(correction=0) + 1e-5)
    found = lens.attribute(seen, 4, [7])
    for name in sublayers(2):
        D = seen[name][0, 4]
        assert found.of(name).item() == pytest.approx((model.unembed.weight[7] @ (gamma * (D - D.mean()) / s)).item(), abs=1e-9)
        if name.endswith("attn"):
            heads = sum(found.parts[f"{name}.heads.{h}"] for h in range(2))
            assert (heads + found.parts[f"{name}.bias"]).item() == pytest.approx(found.of(name).item(), abs=1e-12)
        else:
            assert found.neurons[name].shape == (1, 128)
            assert (found.neurons[name].sum(1) + found.parts[f"{name}.bias"]).item() == pytest.approx(found.of(name).item(), abs=1e-12)


def test_in_post_norm_a_write_goes_through_every_later_norm():
    model = built(norm="post", n_layer=1)
    seen = trace(model, random_ids(model.config, 1, 6))
    first, second = model.blocks[0].attn_norm, model.blocks[0].mlp_norm
    at = lambda name: seen[name][0, 3].detach()
    s1 = torch.sqrt((at("embed") + at("blocks.0.attn")).var(correction=0) + 1e-5)
    s2 = torch.sqrt((at("blocks.0.mid") + at("blocks.0.mlp")).var(correction=0) + 1e-5)
    x = at("blocks.0.attn")
    for norm, s in ((first, s1), (second, s2)):
        x = norm.gamma * (x - x.mean()) / s
    assert lens.attribute(seen, 3, [11]).of("blocks.0.attn").item() == pytest.approx((model.unembed.weight[11] @ x).item(), abs=1e-9)


def test_a_tuned_lens_begins_as_the_logit_lens_and_gets_nearer_to_the_answer_on_other_text():
    model = built(torch.float32)
    rows = random_ids(model.config, 40, 16)
    untrained = lens.TunedLens(4, 32)
    logit, same = lens.both_lenses(model, untrained, rows[:3])
    assert torch.equal(logit, same) and logit[-1].abs() <= 1e-9
    before = {name: p.clone() for name, p in model.named_parameters()}
    logit, tuned = lens.both_lenses(model, lens.tune(model, rows[:32], steps=60, tokens=64), rows[32:])
    assert (tuned[:-1] < logit[:-1]).all(), (logit, tuned)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())


# Flow


def test_gradients_over_depth_are_autograds():
    model = built()
    ids = random_ids(model.config, 2, 8)
    found = flow.gradients(model, ids)
    loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    names, parameters = zip(*model.named_parameters(), strict=True)
    for name, slope, parameter in zip(names, torch.autograd.grad(loss, parameters), parameters, strict=True):
        assert found.weights[name] == pytest.approx(slope.norm().item())
        assert found.relative[name] == pytest.approx((slope.norm() / parameter.norm()).item())
    assert list(found.activations) == stations(2)
    assert found.ratio == found.activations["blocks.0"] / found.activations["blocks.1"]
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match="at least 2"):
        flow.gradients(model, ids[:, :1])


def test_one_weight_of_every_matrix_has_the_gradient_of_finite_differences():
    model = built()
    ids = random_ids(model.config, 1, 8)
    found, loss = {}, flow.next_token_loss(ids)
    for name, parameter in model.named_parameters():
        if parameter.ndim != 2 or name == "unembed.weight":
            continue
        flat, values = parameter.detach().view(-1), []
        index = int(ids[0, 3]) * 32 + 1 if name == "token_embed.weight" else 33
        for step in (1e-6, -2e-6):
            flat[index] += step
            values.append(loss(model(ids)).item())
        flat[index] += 1e-6
        found[name] = (values[0] - values[1]) / 2e-6
        slope = torch.autograd.grad(loss(model(ids)), parameter)[0].view(-1)[index].item()
        assert slope == pytest.approx(found[name], rel=1e-4, abs=1e-9), name
    assert len(found) == 2 + 4 * 2


def test_updates_are_relative_to_the_weights_before():
    before, after = {"w": torch.tensor([3.0, 4.0]), "zero": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.5]), "zero": torch.ones(2)}
    assert flow.updates(before, after) == {"w": pytest.approx(0.1), "zero": None}


def test_writes_are_ratios_first_then_means():
    model = built()
    seen = trace(model, random_ids(model.config, 2, 6))
    h, D, after = (seen[n][:, 1:].detach() for n in ("blocks.0.mid", "blocks.0.mlp", "blocks.0"))
    found = flow.writes(seen)["blocks.0.mlp"]
    assert found.relative == pytest.approx((D.norm(dim=-1) / h.norm(dim=-1)).mean().item())
    assert found.cosine == pytest.approx(((D * h).sum(-1) / D.norm(dim=-1) / h.norm(dim=-1)).mean().item())
    assert found.kept == pytest.approx(((after * h).sum(-1) / after.norm(dim=-1) / h.norm(dim=-1)).mean().item())
    assert found.norm == pytest.approx(after.norm(dim=-1).mean().item())
    assert flow.writes(seen, slice(0, 1))["blocks.0.mlp"] != found
    start, end = seen["embed"][:, 1:].detach(), after
    assert flow.block_influence(seen)[0] == pytest.approx(1 - F.cosine_similarity(start, end, dim=-1).mean().item())
    plain = built(residual=False)
    assert flow.writes(trace(plain, seen.ids))["blocks.0.mlp"].relative is None


def test_entropy_is_one_where_a_head_looks_everywhere_alike_and_zero_at_one_place():
    even = torch.ones(9, 9).tril()
    assert worst(flow.entropy(even / even.sum(-1, keepdim=True)), torch.ones(8)) <= 1e-6
    assert flow.entropy(torch.eye(9)).abs().max() == 0


def test_effective_depth_is_three_numbers():
    costs = [flow.Cost(0.5, 0.4, 0.6), flow.Cost(0.02, -0.01, 0.05), flow.Cost(0.009, 0.008, 0.01)]
    kl = torch.tensor([3.0, 9.0, 0.05, 9.0, 0.2, 9.0, 0.0])
    writes = {f"blocks.{i}.{kind}": flow.Write(mass, 0, 0, 0) for i, mass in enumerate((1.0, 0.0, 3.0)) for kind in ("attn", "mlp")}
    assert flow.effective_depth(costs, kl, writes) == (1, 3, 2.5)
    assert flow.effective_depth(None, torch.zeros(7), {}) == (None, 0, None)


def test_skipping_costs_what_the_loss_rises_by():
    model = built()
    rows = random_ids(model.config, 6, 10)
    (cost, _) = flow.skip_costs(model, rows, batch=4)
    with torch.no_grad():
        whole = model(rows[:, :-1], rows[:, 1:]).mean()
        for matrix in (model.blocks[0].attn.out, model.blocks[0].mlp.down):
            matrix.weight.zero_(), matrix.bias.zero_()
        without = model(rows[:, :-1], rows[:, 1:]).mean()
    assert cost.mean == pytest.approx((without - whole).item(), abs=1e-12)
    assert cost.low < cost.mean < cost.high


def test_head_scores_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="n=8 is not 2 to 7"):
        flow.heads(built(), n=8)


def test_held_out_windows_are_whole_and_spread():
    class Tokens:
        def __len__(self):
            return 101

        def read(self, start, stop):
            return torch.arange(start, stop).numpy().astype("uint16")

    rows = flow.held_out(Tokens(), 10, 5)
    assert rows.tolist() == [list(range(start, start + 11)) for start in (0, 20, 40, 60, 80)]
    assert flow.held_out(Tokens(), 1000, 5)[:, [0, -1]].tolist() == [[0, 50], [50, 100]]
    with pytest.raises(ValueError, match="has 1 tokens; two windows"):
        flow.held_out([0], 10, 5)


# Edits


def test_skipping_a_sublayer_is_the_model_whose_sublayer_writes_nothing():
    for norm in ("pre", "post", "none"):
        model = built(norm=norm)
        ids = random_ids(model.config, 1, 9)
        skipped = edit.run(model, ids, edit.skip(model, "blocks.1.mlp"))
        with torch.no_grad():
            model.blocks[1].mlp.down.weight.zero_(), model.blocks[1].mlp.down.bias.zero_()
        assert worst(skipped, model(ids)) <= 1e-12
    both = edit.skip(built(), "blocks.0")
    assert set(both) == {"blocks.0.attn", "blocks.0.mlp"}


def test_editing_nothing_and_patching_with_its_own_activation_change_nothing():
    model = built(torch.float32)
    ids = random_ids(model.config, 1, 9)
    seen = trace(model, ids)
    assert torch.equal(edit.run(model, ids), seen.logits)
    for address in ("embed", "blocks.0.attn", "blocks.0.attn.attend.1", "blocks.1.mlp.act", "blocks.1.attn.k", "blocks.1"):
        assert torch.equal(edit.run(model, ids, {address: edit.put(seen[address])}), seen.logits), address
        at = edit.put_at(4, seen[address][..., 4, :])
        assert torch.equal(edit.run(model, ids, {address: at}), seen.logits), address
    assert hooks(model) == 0


def test_a_head_is_zeroed_or_replaced_by_its_mean():
    model = built()
    ids, rows = random_ids(model.config, 1, 9), random_ids(model.config, 5, 9, seed=3)
    mean = trace(model, rows)["blocks.0.attn.attend.1"].mean((0, 1))
    for edits, value in ((edit.ablate_head(model, 0, 1), torch.zeros(16).double()), (edit.ablate_head(model, 0, 1, rows), mean)):
        found = edit.run(model, ids, edits)
        with torch.no_grad():  # the same head's share, moved into the projection's bias
            other = built()
            other.blocks[0].attn.out.bias += other.blocks[0].attn.out.weight[:, 16:] @ value
            other.blocks[0].attn.out.weight[:, 16:] = 0
        assert worst(found, other(ids)) <= 1e-12


def test_a_swapped_token_changes_nothing_before_it():
    model = built()
    ids = random_ids(model.config, 9)
    found = edit.swap(model, ids, 4, (int(ids[4]) + 1) % 61)
    other = ids.clone()
    other[4] = (other[4] + 1) % 61
    assert torch.equal(found.before, model(ids[None])[0]) and worst(found.after, model(other[None])[0]) <= 1e-12
    assert found.kl[:4].abs().max() <= 1e-12 and (found.kl[4:] > 0).all()
    with pytest.raises(ValueError, match="position 9 is not among the 9 tokens"):
        edit.swap(model, ids, 9, 0)


def test_patching_everything_gives_everything_both_ways():
    model = built()
    clean, corrupt = random_ids(model.config, 9).tolist(), random_ids(model.config, 9, seed=1).tolist()
    found = edit.patch(model, clean, corrupt, "blocks.1", 3, 4)
    assert (found.denoise, found.noise) == (pytest.approx(1), pytest.approx(1))
    assert edit.patch(model, clean, corrupt, "blocks.1", 3, 4, position=0).denoise == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="9 and 8 tokens"):
        edit.patch(model, clean, corrupt[:-1], "blocks.1", 3, 4)
    with pytest.raises(ValueError, match="no difference to explain"):
        edit.patch(model, clean, clean, "blocks.1", 3, 4)


def test_what_cannot_be_edited_is_refused():
    model = built()
    with pytest.raises(ValueError, match=r"'blocks\.0\.mid' cannot be edited"), edit.edited(model, {"blocks.0.mid": edit.zero}):
        pass
    with pytest.raises(ValueError, match=r"'blocks\.2' is no sublayer"):
        edit.skip(model, "blocks.2")
    with pytest.raises(ValueError, match="not defined"):
        edit.skip(built(residual=False), "blocks.0")
    with pytest.raises(ValueError, match="does not write to the end"):
        edit.effect(built(residual=False), [1, 2], "blocks.0.attn", 3)
    assert hooks(model) == 0


def test_direct_and_total_effect_agree_where_nothing_comes_after_and_no_norm_rescales():
    ids = random_ids(tiny(), 1, 7)
    last = edit.effect(built(norm="none"), ids, "blocks.1.mlp", 5)
    assert last.direct == pytest.approx(last.total, abs=1e-9) and last.repair == pytest.approx(0, abs=1e-9)
    first = edit.effect(built(), ids, "blocks.0.attn.heads.1", 5)
    assert abs(first.repair) > 1e-3 and first.repair == pytest.approx(first.direct - first.total)


# Models of glass: built by hand, so that the right answer is known


def test_a_model_whose_sublayers_are_silent():
    model = Transformer(tiny(init="zero")).eval()
    ids = random_ids(model.config, 2, 10)
    seen = trace(model, ids)
    first = lens.lens(model, seen["embed"])
    for name, state in seen.stream().items():
        assert torch.equal(lens.lens(model, state), first), name
    assert all(write.relative == 0 and write.kept == pytest.approx(1) for write in flow.writes(seen).values())
    assert flow.block_influence(seen) == [pytest.approx(0, abs=1e-12)] * 2
    assert all(cost.mean == 0 for cost in flow.skip_costs(model, ids))
    depth = flow.effective_depth(flow.skip_costs(model, ids), lens.both_lenses(model, lens.TunedLens(4, 32), ids)[1], flow.writes(seen))
    assert depth == (0, 0, None)
    parts = lens.attribute(seen, -1, [4])
    assert all(parts.of(name).item() == 0 for name in sublayers(2))


def silent(**changes) -> Transformer:
    """No norm, no pattern but the even one, nothing written: every weight 0."""
    model = Transformer(tiny(norm="none", tied=False, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def test_a_model_where_one_mlp_writes_one_token():
    a, b, said = 2, 3, 5
    model = silent(vocab_size=8, d_model=8, n_head=2, n_layer=3, activation="relu")
    with torch.no_grad():
        model.token_embed.weight.copy_(torch.eye(8)), model.unembed.weight.copy_(torch.eye(8))
        model.blocks[1].mlp.up.weight[0, a], model.blocks[1].mlp.down.weight[said, 0] = 1, 4  # after `a`, say `said`
    clean, corrupt = [0, 1, a], [0, 1, b]
    seen = trace(model, clean)
    parts = lens.attribute(seen, -1, [said])
    for name in sublayers(3):
        right = name == "blocks.1.mlp"
        assert parts.of(name).item() == 4 * right
        patched = edit.patch(model, clean, corrupt, name, said, 6)
        assert (patched.denoise, patched.noise) == (right, right)
        found = edit.effect(model, clean, name, said)
        assert found.direct == pytest.approx(found.total, abs=1e-12)
        assert (edit.run(model, clean)[0, -1, said] - edit.run(model, clean, edit.skip(model, name))[0, -1, said]).item() == 4 * right
    assert parts.neurons["blocks.1.mlp"][0].tolist() == [4.0] + [0.0] * 31
    stay = lens.convergence(torch.stack([lens.lens(model, s)[0].argmax(-1) for s in seen.stream().values()]), seen.logits[0].argmax(-1))
    assert stay.tolist() == [0, 0, stations(3).index("blocks.1")]
    (mlp,) = [s["mlp"] for s in story.tell(seen)["sublayers"] if s["address"] == "blocks.1.mlp"]
    assert mlp["neurons"][0] == {"neuron": 0, "before": 1, "after": 1, "norm": 4, "push": {"answer": 3.5, "target": 3.5}}


def induction_model(V: int = 20, T: int = 17) -> Transformer:
    """Two heads in two layers that continue what was seen before: the first notes which token stood before each, the second looks for what
    came after this one. The stream is token | position | token before | answer, one-hot each."""
    D, sharp = 3 * V + T, 1000.0
    model = silent(vocab_size=V, context=T, d_model=D, n_head=1)
    token, position, before, answer = (slice(*ends) for ends in ((0, V), (V, V + T), (V + T, 2 * V + T), (2 * V + T, D)))
    q, k, v = slice(0, D), slice(D, 2 * D), slice(2 * D, 3 * D)
    part = lambda rows, within: slice(rows.start + within.start, rows.start + within.stop)
    with torch.no_grad():
        model.token_embed.weight[:, token], model.position_embed.weight[:, position] = torch.eye(V).double(), torch.eye(T).double()
        model.unembed.weight[:, answer] = 50 * torch.eye(V)
        for block, reads, seeks, keeps, shift in ((0, position, position, before, True), (1, token, before, answer, False)):
            attn = model.blocks[block].attn
            wanted = torch.eye(T).roll(-1, 0) if shift else torch.eye(V)  # query t wants key t - 1
            attn.qkv.weight[part(q, seeks), reads] = sharp * wanted.double()
            attn.qkv.weight[part(k, seeks), seeks] = torch.eye(seeks.stop - seeks.start).double()
            attn.qkv.weight[part(v, token), token] = torch.eye(V).double()
            attn.out.weight[keeps, token] = torch.eye(V).double()
    return model


def test_a_model_that_continues_what_it_saw_before():
    found = flow.heads(induction_model(), n=8, rows=4)
    first, second = found.heads
    assert first.previous == pytest.approx(1) and found.kind(first) == "previous"
    assert second.induction == pytest.approx(1) and found.kind(second) == "induction"
    assert first.induction == pytest.approx(0, abs=1e-9) and second.duplicate == pytest.approx(0, abs=1e-9)
    assert second.copying > 4 and abs(first.copying) < 1e-9  # what the first writes, no logit reads
    assert found.loss_second == pytest.approx(0, abs=1e-9) and found.loss_first > 2 and found.repeats_help < -2
    even = sum(1 / (q + 1) for q in range(1, 17)) / 16
    assert found.uniform["previous"] == pytest.approx(even)
    assert found.uniform["first"] == pytest.approx((1 + 16 * even) / 17)


def test_a_head_that_looks_everywhere_alike_has_the_uniform_scores():
    found = flow.heads(silent(n_head=2), n=7, rows=2)
    for head in found.heads:
        for name in flow.SCORES:
            assert getattr(head, name) == pytest.approx(found.uniform[name])
        assert found.kind(head) == "mixed" and head.entropy == pytest.approx(1)


# The story of one token


@pytest.mark.parametrize("changes", OPTIONS, ids=str)
@pytest.mark.parametrize(("norm", "residual"), VARIANTS)
def test_a_story_adds_up_in_every_kind_of_model(norm, residual, changes):
    model = built(torch.float32, norm=norm, residual=residual, **changes)
    told = story.tell(trace(model, random_ids(model.config, 1, 16)), 7)
    assert told["balance_error"] <= 1e-5
    assert [s["address"] for s in told["sublayers"]] == sublayers(model.config.n_layer)
    first = told["sublayers"][0]
    assert (first["norm"] is None) == (norm == "none") and (told["final_norm"] is None) == (norm != "pre")
    assert (first["added"]["degrees"] is None) == (not residual) and (first["push"] is None) == (not residual)
    assert all(s["attention"]["pattern_error"] <= 1e-5 for s in told["sublayers"] if "attention" in s)
    json.dumps(told, allow_nan=False)


def test_a_storys_numbers_are_those_of_plain_torch():
    model = built()
    ids = random_ids(model.config, 1, 10)
    seen = trace(model, ids)
    told = story.tell(seen, 6)
    part = told["sublayers"][2]  # blocks.1.attn
    x, D, after = (seen[n][0, 6].detach() for n in ("blocks.0", "blocks.1.attn", "blocks.1.mid"))
    assert part["read"] == {
        "mean": pytest.approx(x.mean().item()),
        "std": pytest.approx(x.std(correction=0).item()),
        "norm": pytest.approx(x.norm().item()),
    }
    assert part["added"]["relative"] == pytest.approx((D.norm() / x.norm()).item())
    assert math.cos(math.radians(part["added"]["degrees"])) == pytest.approx((D @ x / D.norm() / x.norm()).item())
    assert part["stream_norm"] == pytest.approx(after.norm().item())
    A = seen["blocks.1.attn.pattern"][0, 1, 6]
    assert part["attention"]["heads"][1]["weights"] == pytest.approx(A[:7].tolist())
    assert part["attention"]["heads"][1]["looks"][0]["position"] == int(A.argmax())
    norm = part["norm"]
    assert norm["std"] == pytest.approx(torch.sqrt(x.var(correction=0) + 1e-5).item())
    assert norm["after_beta_norm"] == pytest.approx(seen["blocks.1.attn_norm"][0, 6].norm().item())
    mlp, up, act = told["sublayers"][3]["mlp"], seen["blocks.1.mlp.up"][0, 6], seen["blocks.1.mlp.act"][0, 6]
    assert mlp["let_through"] == pytest.approx((act.abs().sum() / up.abs().sum()).item())
    assert mlp["positive"] == int((up > 0).sum()) and mlp["cut"] == int((act.abs() < up.abs() / 10).sum())
    strongest = int((act.abs() * model.blocks[1].mlp.down.weight.norm(dim=0)).argmax())
    assert mlp["neurons"][0]["neuron"] == strongest and mlp["neurons"][0]["after"] == pytest.approx(act[strongest].item())
    p = lens.lens(model, after).softmax(-1)
    assert told["next"]["id"] == ids[0, 7] and part["after"]["target_probability"] == pytest.approx(p[ids[0, 7]].item(), rel=1e-5)
    assert part["before"] == told["sublayers"][1]["after"]
    assert told["answer"]["id"] == int(seen.logits[0, 6].argmax())


def test_a_position_that_is_not_there_is_refused_and_the_last_has_no_next():
    seen = trace(built(), [1, 2, 3])
    with pytest.raises(ValueError, match="position 3 is not among the 3 tokens"):
        story.tell(seen, 3)
    assert story.tell(seen)["next"] is None


def test_the_paper_model_can_be_computed_by_hand():
    """Every step again in plain Python floats, from the weights that are printed."""
    from andrea.insight.paper import paper

    done = paper()
    W, T = done["weights"], len(done["text"])
    values = {(s["address"], s["step"]): s["values"] for s in done["steps"]}
    dot = lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))
    through = lambda row, name: [
        dot(row, column) + bias for column, bias in zip(zip(*W[f"{name}.weight"], strict=True), W[f"{name}.bias"], strict=True)
    ]
    add = lambda a, b: [x + y for x, y in zip(a, b, strict=True)]
    same = lambda address, step, rows: [pytest.approx(row, abs=1e-9) for row in rows] == values[address, step]

    def norm(name, row):
        mean = sum(row) / 4
        std = math.sqrt(sum((x - mean) ** 2 for x in row) / 4 + 1e-5)
        return [g * (x - mean) / std + b for x, g, b in zip(row, W[f"{name}.gamma"], W[f"{name}.beta"], strict=True)]

    gelu = lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    letters = [done["letters"].index(letter) for letter in done["text"]]
    x = [add(W["token_embed.weight"][i], W["position_embed.weight"][t]) for t, i in enumerate(letters)]
    assert same("embed", "x", x)
    for i in range(2):
        name = f"blocks.{i}"
        read = [norm(f"{name}.attn_norm", row) for row in x]
        assert same(f"{name}.attn_norm", "out", read)
        qkv = [through(row, f"{name}.attn.qkv") for row in read]
        z = [[] for _ in range(T)]
        for h in range(2):
            q, k, v = ([row[4 * part + 2 * h : 4 * part + 2 * h + 2] for row in qkv] for part in range(3))
            for t in range(T):
                scores = [dot(q[t], k[j]) / math.sqrt(2) for j in range(t + 1)]
                weights = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
                assert values[f"{name}.attn", "scores"][h][t] == [*(pytest.approx(s) for s in scores), *[None] * (T - t - 1)]
                assert values[f"{name}.attn", "pattern"][h][t] == pytest.approx([*weights, *[0] * (T - t - 1)])
                z[t] += [dot(weights, column) for column in zip(*v[: t + 1], strict=True)]
        x = [add(row, through(mixed, f"{name}.attn.out")) for row, mixed in zip(x, z, strict=True)]
        assert same(f"{name}.mid", "x", x)
        up = [through(norm(f"{name}.mlp_norm", row), f"{name}.mlp.up") for row in x]
        assert same(f"{name}.mlp", "act", [[gelu(u) for u in row] for row in up])
        x = [add(row, through([gelu(u) for u in wide], f"{name}.mlp.down")) for row, wide in zip(x, up, strict=True)]
        assert same(name, "x", x)
    logits = [[dot(norm("final_norm", row), letter) for letter in W["token_embed.weight"]] for row in x]
    assert same("unembed", "logits", logits)
    assert values["unembed", "probabilities"][-1] == pytest.approx([math.exp(z) / sum(map(math.exp, logits[-1])) for z in logits[-1]])
    assert done["balance_error"] <= 1e-12
    assert all(round(10 * weight, 9) % 1 == 0 for row in W["blocks.0.mlp.up.weight"] for weight in row)


def test_the_package_hands_on_trace():
    model = Transformer(ModelConfig(vocab_size=11, context=8, n_layer=1, n_head=1, d_model=8))
    assert andrea.trace(model, [1, 2, 3])["blocks.0.attn"].shape == (1, 3, 8)
