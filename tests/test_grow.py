"""Small models grown for claims: paired, the product's own training, divergence counted; the probes; each trained claim at a tiny size."""

import json
import math
from dataclasses import replace

import pytest
import torch

from andrea.accounting import count
from andrea.claims import layer_roles, mlp_ratio
from andrea.claims.claim import open_claim
from andrea.claims.gelu_relu import relu_squared
from andrea.claims.grow import SMALL, corpus, grown, paired, training
from andrea.claims.swiglu_8_3 import bilinear
from andrea.config import override
from andrea.insight.probe import Examples, centre, chance, page, probe
from andrea.model import Transformer
from andrea.training.report import StepDone
from andrea.training.start import train
from andrea.training.state import begin

pytestmark = pytest.mark.usefixtures("one_thread")
STORIES = ("data.corpus=stories", "data.stories=60", "model.vocab_size=300")
TINY = override(SMALL, *STORIES, "model.n_layer=2", "model.d_model=32", "model.context=24", "train.steps=5", "train.batch_tokens=120")
OTHERS = {
    "width of the MLP": ("model.mlp_ratio=1.75",),
    "gated": ("model.activation=swiglu", "model.mlp_ratio=4"),
    "post-norm": ("model.norm=post",),
    "no residual": ("model.residual=false", "model.norm=none"),
    "rotary": ("model.positions=rotary",),
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_arms_share_every_tensor_of_one_name_and_shape(changes):
    a = dict(paired(lambda: Transformer(TINY.model), 3).named_parameters())
    b = dict(paired(lambda: Transformer(override(TINY, *changes).model), 3).named_parameters())
    same = [name for name in a if name in b and a[name].shape == b[name].shape]
    assert len(same) >= 10
    assert all(torch.equal(a[name], b[name]) for name in same)


@pytest.mark.parametrize(
    ("build", "changes"), [(relu_squared, ()), (bilinear, ("model.activation=swiglu",))], ids=["relu squared", "bilinear"]
)
def test_a_module_of_ones_own_begins_with_the_same_numbers(build, changes):
    c = override(TINY, *changes).model
    a, b = (paired(lambda of=of: of(c), 7).state_dict() for of in (Transformer, build))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_numbers_depend_on_name_and_seed_and_are_as_the_initialisation_has_them():
    c = override(TINY, "model.n_layer=3", "model.d_model=64").model
    a, b = (dict(paired(lambda: Transformer(c), seed).named_parameters()) for seed in (0, 1))
    assert not torch.equal(a["blocks.0.mlp.up.weight"], a["blocks.1.mlp.up.weight"])
    assert not torch.equal(a["blocks.0.mlp.up.weight"], b["blocks.0.mlp.up.weight"])
    # 16,384 draws: the standard deviation's own error is 0.55 %
    assert a["blocks.0.mlp.up.weight"].std().item() == pytest.approx(0.02, rel=0.03)
    assert a["blocks.2.mlp.down.weight"].std().item() == pytest.approx(0.02 / math.sqrt(6), rel=0.03)
    zero = paired(lambda: Transformer(replace(c, init="zero")), 0)
    assert not zero.blocks[1].attn.out.weight.any() and zero.blocks[1].attn.qkv.weight.any()


def test_the_training_is_that_of_a_run(tmp_path):
    config = override(TINY, "train.device=cpu", "train.dtype=float32", "train.kernels=torch", "train.compile=off", "train.seed=11")
    told = [event for event in train(config, tmp_path / "run") if isinstance(event, StepDone)]
    state, steps = training(config, 11)
    resolved = {"kernels": "torch", "device": "cpu", "recompute": False, "dtype": "float32"}
    size = corpus(config.data, 300).data.tokenizer.vocab_size
    model = replace(config.model, vocab_size=size)
    state.model.load_state_dict(begin(replace(config, model=model), resolved).model.state_dict())  # its numbers come in another order
    ours = [next(steps) for _ in told]
    assert len(told) == 5
    assert [(step.loss, step.grad_norm) for step in ours] == [(event.loss, event.grad_norm) for event in told]


def test_figures_say_what_was_grown():
    found, model = grown(TINY, 5, evaluate_at=(2, 4))
    again, _ = grown(TINY, 5, evaluate_at=(2, 4))
    other, _ = grown(TINY, 6)
    assert {**found, "step_ms": 0} == {**again, "step_ms": 0} and found["grad_norms"] != other["grad_norms"]
    assert [step for step, _ in found["curve"]] == [2, 4, 5]
    assert found["parameters"] == count(model.config).trunk + count(model.config).final_norm
    assert found["tokens"] == 600 and len(found["grad_norms"]) == 5
    json.dumps(found, allow_nan=False)


def test_text_knows_what_frequency_alone_has_to_lose():
    text = corpus(TINY.data, 300)
    seen = torch.bincount(torch.from_numpy(text.data.val.read(0, len(text.data.val)))).double()
    assert text.unigram == pytest.approx(torch.distributions.Categorical(seen).entropy().item(), rel=1e-6)
    assert text.unigram < math.log(300)


def test_divergence_is_counted_and_enters_as_the_frequency_of_tokens():
    stuck, _ = grown(override(TINY, "optim.lr=1e-9"), 0)
    assert stuck["diverged"] and not stuck["nan"] and stuck["loss"] == stuck["unigram"]
    broken, _ = grown(override(TINY, "model.norm=none", "optim.lr=1e9", "optim.grad_clip=0"), 0, evaluate_at=(1, 2, 3, 4))
    assert broken["diverged"] and broken["nan"] and broken["loss"] == broken["unigram"] and broken["steps_done"] < 5
    assert all(math.isfinite(loss) for _, loss in broken["curve"])
    json.dumps(broken, allow_nan=False)
    fine, _ = grown(override(TINY, "train.steps=200", "optim.lr=2e-3"), 0)
    assert not fine["diverged"] and fine["loss"] < fine["unigram"]


def test_a_claims_runs_have_a_number_of_steps():
    with pytest.raises(ValueError, match=r"set train\.steps"):
        grown(replace(TINY, train=replace(TINY.train, steps=None)), 0)


@pytest.mark.parametrize("width", mlp_ratio.WIDTHS)
def test_ratios_are_compared_at_equal_parameters(width):
    assert abs(count(mlp_ratio.matched(width)).trunk / mlp_ratio.TARGET - 1) < 0.001


@pytest.mark.parametrize(
    "name",
    [
        "gelu-relu",
        "gelu-relu-why",
        "mlp-ratio",
        "norm-stability",
        "pre-post-norm",
        "refinement",
        "residual-training",
        "swiglu-8-3",
        "layer-roles",
    ],
)
def test_each_trained_claim_runs_and_answers_its_questions(name, monkeypatch):
    monkeypatch.setattr(layer_roles, "STORIES", 60)
    monkeypatch.setattr(layer_roles, "PAIRS", 8)
    claim = open_claim(name).claim
    tiny = ("data.stories=300", "model.n_layer=3") if name == "layer-roles" else (*STORIES, "train.batch_tokens=64")
    claim = replace(claim, base=override(claim.base, "train.steps=2", *tiny))
    figures = {arm: dict(claim.measure(claim.task(arm, 0), claim.arms[arm])) for arm in claim.arms}
    json.dumps(figures, allow_nan=False)
    assert all(math.isfinite(question.value(figures)) for question in claim.questions)


# --- probes -------------------------------------------------------------------------------------------------------------------------


def examples(n=3000, n_types=60, d=24, seed=0):
    """Words as random vectors of their own, with some noise: one station of the plain, one in which the labels stand as well."""
    draw = torch.Generator().manual_seed(seed)
    types = torch.randint(n_types, (n,), generator=draw)
    labels = torch.randint(4, (n,), generator=draw)
    plain = torch.randn(n_types, d, generator=draw)[types] + 0.1 * torch.randn(n, d, generator=draw)
    told = plain.clone()
    told[:, :4] += 3 * torch.nn.functional.one_hot(labels, 4)
    return Examples(torch.stack([plain, told]), labels, types, torch.arange(n) // 10)


def test_a_probe_reads_what_is_there_and_no_more():
    plain, told = probe(examples())
    # 600 test words, 4 labels: chance is 0.25 with a standard error of 0.018
    assert abs(plain.accuracy - 0.25) < 0.07 and abs(plain.majority - 0.25) < 0.07
    assert told.accuracy > 0.9 and told.selectivity > 0.2


def test_a_probe_of_shuffled_labels_is_at_chance():
    held = examples()
    order = torch.randperm(len(held.labels), generator=torch.Generator().manual_seed(5))
    assert all(abs(read.accuracy - 0.25) < 0.07 for read in probe(held._replace(labels=held.labels[order])))


def test_what_hangs_on_the_word_alone_is_no_selectivity():
    """The control task is as easy as the label where both are of the word; on new words neither can be read."""
    held = examples(n_types=12)
    of_word = held._replace(labels=torch.randint(3, (12,), generator=torch.Generator().manual_seed(1))[held.types], states=held.states[:1])
    (read,) = probe(of_word)
    assert read.accuracy > 0.95 and abs(read.selectivity) < 0.05
    many = examples(n_types=300)
    labels = torch.randint(3, (300,), generator=torch.Generator().manual_seed(1))[many.types]
    (new,) = probe(many._replace(labels=labels, states=many.states[:1]), by_type=True)
    assert abs(new.accuracy - 1 / 3) < 0.2


def test_a_probe_needs_words_in_every_part():
    held = examples(n=20, n_types=3)
    with pytest.raises(ValueError, match="too few to split"):
        probe(held)
    with pytest.raises(ValueError, match="two labels"):
        probe(examples()._replace(labels=torch.zeros(3000, dtype=torch.long)))


def test_the_centre_is_where_it_is_gained():
    assert centre([0.0, 0.0, 0.5, 0.5]) == 2
    assert centre([0.4, 0.4, 0.1]) == 0
    assert centre([0.0, 0.2, 0.1, 0.4]) == 2
    assert centre([0.0, 0.01, -0.3]) is None


@pytest.mark.parametrize(
    ("k", "n", "at_5", "at_1"),
    [(3, 3, 41, 42), (3, 4, 54, 55), (3, 5, 66, 68), (3, 6, 79, 81), (4, 3, 84, 87), (4, 4, 111, 114), (4, 5, 137, 141)],
)
def test_pages_test_has_the_published_critical_values(k, n, at_5, at_1):
    """Page 1963, table 2: the smallest L that is significant at 5 and 1 %."""
    orders = [range(1, k + 1)] * n
    assert chance(at_5, orders) <= 0.05 < chance(at_5 - 1, orders)
    assert chance(at_1, orders) <= 0.01 < chance(at_1 - 1, orders)


def test_pages_test_shares_ranks_and_refuses_rows_of_other_lengths():
    assert page([[1.0, 1.0, 1.0]] * 4) == (48, pytest.approx(1))
    assert page([[0.1, 0.2, 0.3]] * 2) == (28, pytest.approx(1 / 36))
    for rows in ([], [[1, 2], [1, 2, 3]], [list(range(7))]):
        with pytest.raises(ValueError, match="one length, 2 to 6"):
            page(rows)


def test_a_storys_words_end_at_their_last_tokens():
    from andrea.data.stories import story

    tokenizer = corpus(TINY.data, 300).data.tokenizer
    for index in range(3):
        s = story(4, index)
        ids, ends = layer_roles.encoded(tokenizer, s.text, s.words, 100)
        assert len(ids) == 100 and 10 < len(ends) < len(s.words)
        for word, end in zip(s.words, ends, strict=False):
            assert tokenizer.decode(ids[: end + 1].tolist()).rstrip(' ."?!,').endswith(s.text[word.start : word.end])


def test_differences_are_those_of_each_text_alone():
    tokenizer = corpus(TINY.data, 300).data.tokenizer
    model = paired(lambda: Transformer(replace(TINY.model, context=64)), 0)
    texts = [[tokenizer.separator, *tokenizer.encode_array(t).tolist()] for t in ("The cat sleeps.", "The cat sleep.", "A dog.", "A dogs.")]
    alone = [-model(torch.tensor([t[:-1]]), torch.tensor([t[1:]])).sum().item() for t in texts]
    # float32: sums of 20 losses of about 6
    assert layer_roles.differences(model, texts).tolist() == pytest.approx([alone[0] - alone[1], alone[2] - alone[3]], abs=1e-4)
