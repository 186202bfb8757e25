"""Sampling against distributions written out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.infer import Sampling, choose, penalise, probabilities, sample

LOGITS = torch.tensor([0.5, -1.2, 3.1, 0.8, -0.3, 2.7, -0.9, 1.4])


def of(*p):
    """Float32 logits of these probabilities."""
    return torch.tensor(p).log()


def kept(p):
    return set(p.nonzero()[:, 0].tolist())


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-300, 5e-324])
def test_a_temperature_of_nothing_is_greedy_and_finite(temperature):
    p = probabilities(LOGITS, temperature)
    assert p.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert [int(sample(p, generator(seed))) for seed in range(2)] == [2, 2]


def test_temperature_divides_the_logits():
    torch.testing.assert_close(probabilities(LOGITS, 0.7), (LOGITS.double() / 0.7).softmax(-1))
    torch.testing.assert_close(probabilities(LOGITS, 1e300), torch.full((8,), 1 / 8, dtype=torch.float64))


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_top_k_0_is_off(temperature):
    p = probabilities(LOGITS, temperature, top_k=0)
    assert torch.equal(p, probabilities(LOGITS, temperature)) and p.argmax() == 2


@pytest.mark.parametrize("top_k", [8, 9, 100_000])
def test_top_k_of_the_vocabulary_or_more_is_off(top_k):
    assert torch.equal(probabilities(LOGITS, top_k=top_k), probabilities(LOGITS))
    assert torch.equal(probabilities(LOGITS, top_k=top_k, top_p=0.9), probabilities(LOGITS, top_p=0.9))


def test_top_k_keeps_the_k_likeliest_and_renormalises():
    p = probabilities(LOGITS, top_k=3)
    assert kept(p) == {2, 5, 7}
    torch.testing.assert_close(p[[2, 5, 7]], LOGITS[[2, 5, 7]].double().softmax(-1))


def test_top_k_ranks_by_logit_where_a_high_temperature_makes_probabilities_equal():
    assert kept(probabilities(LOGITS, 1e300, top_k=2)) == {2, 5}


@pytest.mark.parametrize(
    ("p", "top_p", "wanted"),
    [
        ((0.5, 0.35, 0.10, 0.05), 0.9, {0, 1, 2}),  # the crossing token stays
        ((0.5, 0.3, 0.15, 0.05), 0.6, {0, 1}),
        ((0.3, 0.1, 0.1, 0.5), 0.8, {3, 0}),  # a sum of exactly p is enough
        ((0.7, 0.2, 0.1), 0.7, {0}),  # as float32 logits these fall short of their sum by up to 4e-8
        ((0.45, 0.35, 0.2), 0.8, {0, 1}),
        ((0.3, 0.1, 0.1, 0.5), 0.9, {3, 0, 1}),  # equal ones: the lowest id first
        ((0.25, 0.25, 0.25, 0.25), 0.5, {0, 1}),
        ((0.1,) * 10, 0.7, set(range(7))),
        ((0.3, 0.1, 0.1, 0.5), 0, {3}),
        ((0.3, 0.1, 0.1, 0.5), 1e-9, {3}),
        ((0.3, 0.1, 0.1, 0.5), 1, {0, 1, 2, 3}),
    ],
)
def test_top_p_keeps_the_likeliest_up_to_the_one_that_reaches_p(p, top_p, wanted):
    for logits in (of(*p), of(*p) + 7, of(*p).double(), of(*p).double().softmax(-1).log()):
        result = probabilities(logits, top_p=top_p)
        assert kept(result) == wanted
        share = sum(p[i] for i in wanted)
        torch.testing.assert_close(
            result, torch.tensor([x / share * (i in wanted) for i, x in enumerate(p)], dtype=torch.float64), atol=1e-6, rtol=0
        )


def test_top_p_counts_what_top_k_left():
    assert kept(probabilities(of(0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.5)) == {0}  # 4/7 is enough; of the whole, 0.4 were not


def test_min_p_is_relative_to_the_likeliest():
    logits = of(0.5, 0.25, 0.15, 0.1)
    assert kept(probabilities(logits, min_p=0.25)) == {0, 1, 2}
    assert kept(probabilities(logits, min_p=1)) == {0}
    assert torch.equal(probabilities(logits, min_p=0), probabilities(logits))
    assert kept(probabilities(logits, 0.5, min_p=0.25)) == {0, 1}  # after temperature: 0.25 / 0.5 squared


def test_equal_logits_are_taken_lowest_id_first():
    equal = torch.zeros(1000)
    assert kept(probabilities(equal, temperature=0)) == {0}
    assert kept(probabilities(equal, top_k=3)) == {0, 1, 2}
    assert kept(probabilities(equal, top_p=0)) == {0}


def test_rows_are_independent():
    batch = torch.stack([LOGITS, LOGITS.flip(0), -LOGITS])
    options = {"temperature": 0.9, "top_k": 5, "top_p": 0.8, "min_p": 0.1}
    p = probabilities(batch, **options)
    for row, logits in zip(p, batch, strict=True):
        assert torch.equal(row, probabilities(logits, **options))
    draws = sample(p, [generator(seed) for seed in (5, 6, 7)])
    assert draws.tolist() == [int(sample(row, generator(seed))) for row, seed in zip(p, (5, 6, 7), strict=True)]


def test_the_penalty_makes_seen_tokens_less_likely_whatever_their_sign():
    logits = torch.tensor([2.0, -2.0, 1.0, 0.0])
    assert penalise(logits, torch.tensor([0, 1]), 2).tolist() == [1, -4, 1, 0]
    assert penalise(logits, torch.tensor([0, 1, 0, 1, 3]), 2).tolist() == [1, -4, 1, 0]  # twice counts once
    assert penalise(torch.stack([logits, logits]), torch.tensor([[0, 1], [2, 2]]), 2).tolist() == [[1, -4, 1, 0], [2, -2, 0.5, 0]]
    assert logits.tolist() == [2, -2, 1, 0]


def test_draws_have_the_given_frequencies_and_never_a_probability_of_0():
    p = torch.tensor([0.0, 0.5, 0.0, 0.3, 0.2, 0.0], dtype=torch.float64)
    count = sample(p.expand(20_000, -1), generator()).bincount(minlength=6) / 20_000
    torch.testing.assert_close(count.double(), p, atol=0.015, rtol=0)  # over four standard errors of 0.0035
    assert count[[0, 2, 5]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("p", [torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0.0, 0.1 + 0.2, 0.0])])
@pytest.mark.parametrize("draw", [0.0, 1 - 2**-53])
def test_both_ends_of_the_unit_interval_fall_on_a_token_with_a_probability(p, draw, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(tuple(shape), draw, dtype=torch.float64))
    assert sample(p, generator()) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_logits_are_refused_in_words(bad):
    logits = LOGITS.clone()
    logits[3] = bad
    for temperature in (0, 1):
        with pytest.raises(ValueError, match="nan or infinity"):
            probabilities(torch.stack([LOGITS, logits]), temperature)


def test_a_logit_of_minus_infinity_is_a_probability_of_0():
    assert probabilities(torch.tensor([0.0, -math.inf, 0.0]), top_p=0.99).tolist() == [0.5, 0, 0.5]


BAD = [
    ("temperature", -1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("top_k", -1),
    ("top_k", 1.5),
    ("top_p", -0.1),
    ("top_p", 1.1),
    ("top_p", math.nan),
    ("min_p", -0.1),
    ("min_p", 2),
]
BAD_SAMPLING = [
    *BAD,
    ("repetition_penalty", 0),
    ("repetition_penalty", -2),
    ("repetition_penalty", math.inf),
    ("seed", -1),
    ("seed", 2**63),
    ("seed", 0.5),
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("stop", ("a", "")),
    ("stop", (1,)),
    ("past_context", "slide"),
    ("logprobs", -1),
    ("lookup", 2.5),
    ("choices", ("a", "")),
]


@pytest.mark.parametrize(("name", "value"), BAD_SAMPLING)
def test_a_value_outside_its_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        Sampling(**{name: value})


@pytest.mark.parametrize(("name", "value"), BAD)
def test_the_functions_refuse_what_sampling_refuses(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        probabilities(LOGITS, **{name: value})


def test_a_penalty_of_0_is_refused_by_the_function_too():
    with pytest.raises(ValueError, match=r"^repetition_penalty=0"):
        penalise(LOGITS, torch.tensor([0]), 0)


def test_two_rules_at_once_are_refused():
    with pytest.raises(ValueError, match="choices and regex were given; an answer follows one rule"):
        Sampling(choices="a", regex="b")


SETTINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0, 1e-6, 0.3, 1, 40]),
    top_k=st.sampled_from([0, 1, 3, 300, 1000]),
    top_p=st.sampled_from([0, 1e-9, 0.5, 0.9, 0.999, 1]),
    min_p=st.sampled_from([0, 0.01, 0.3, 1]),
    repetition_penalty=st.sampled_from([1, 1, 1.7]),
    logprobs=st.sampled_from([0, 1, 5, 1000]),
)


@settings(max_examples=300, deadline=None)
@given(SETTINGS, st.sampled_from([1, 2, 65, 700]), st.integers(0, 2**31), st.booleans())
def test_the_fast_choice_is_the_plain_one(s, size, seed, ties):
    """Of logits with and without equal ones. Only a number that falls on the border of two tokens, to 1e-15, may be rounded otherwise."""
    g = generator(seed)
    logits = torch.randn(size, generator=g) * 3
    logits = logits.round() if ties else logits
    seen = torch.randint(size, (5,), generator=g)
    scores = penalise(logits.double(), seen, s.repetition_penalty)
    scores[0] = logits[0]
    wanted = int(sample(probabilities(scores, s.temperature, s.top_k, s.top_p, s.min_p), generator(seed)))
    choice = choose(logits.numpy(), s, generator(seed), seen.tolist(), exempt=0)
    assert choice.id == wanted
    logprobs = logits.double().log_softmax(-1)
    assert choice.logprob == pytest.approx(logprobs[wanted].item(), abs=1e-12)
    order = logprobs.sort(descending=True, stable=True).indices[: s.logprobs].tolist()
    assert [i for i, _ in choice.top] == order
    assert [x for _, x in choice.top] == pytest.approx(logprobs[order].tolist(), abs=1e-12)


def test_the_fast_choice_is_made_among_what_is_allowed():
    s = Sampling(temperature=2, logprobs=1)
    drawn = {choose(LOGITS.numpy(), s, generator(seed), allowed=np.array([1, 4, 6])).id for seed in range(60)}
    assert drawn == {1, 4, 6} and choose(LOGITS.numpy(), replace(s, temperature=0), generator(), allowed=np.array([1, 4])).id == 4
    assert choose(LOGITS.numpy(), s, generator(), allowed=np.array([1])).top[0][0] == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_the_fast_choice_refuses_broken_logits(bad):
    with pytest.raises(ValueError, match="nan or infinity"):
        choose(np.array([0, bad, 1], dtype=np.float32), Sampling(), generator())


def test_one_stop_string_or_a_list_of_them_becomes_a_tuple():
    assert Sampling(stop="end").stop == ("end",) and Sampling(choices=["a"]).choices == ("a",)
    assert Sampling(stop=["a", "b"]).stop == ("a", "b")
