"""Answers held to a rule: whatever the model would rather say, and however the text is cut into tokens."""

import json
import re
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from speakers import BYTES, tiny

from andrea.data.tokenizer import char_tokenizer, train_bpe
from andrea.infer import Sampling, complete
from andrea.infer.constrain import Rules

pytestmark = pytest.mark.usefixtures("one_thread")
guided = pytest.mark.skipif(find_spec("llguidance") is None, reason="the package llguidance is not installed")

BPE = train_bpe(["yes yesterday no nothing, yes and no. 12 345 " * 20], 290)
CHAR = char_tokenizer(["yesterday no é"])
KINDS = pytest.mark.parametrize("tokenizer", [BYTES, BPE, CHAR], ids=["byte", "bpe", "char"])
FREE = Sampling(temperature=1.5, seed=0, max_tokens=40)


def answers(tokenizer, n=40, prompt="no", **options):
    return complete(tiny(tokenizer=tokenizer), prompt, replace(FREE, **options), n)


@KINDS
def test_the_answer_is_exactly_one_of_the_choices_and_each_can_be(tokenizer):
    choices = ("yes", "no", "yesterday", "née", " day")
    found = answers(tokenizer, n=150, choices=choices)
    assert {a.text for a in found} == set(choices) and {a.finish for a in found} == {"stop"}
    ways = {a.ids for a in found if a.text == "yesterday"}
    assert len(ways) == 1 if tokenizer is not BPE else len(ways) > 5  # any way of cutting it counts
    for a in found:  # "yes" begins "yesterday", so only the separator says that it was meant
        assert (a.ids[-1] == tokenizer.separator) == (a.text == "yes")


def test_a_greedy_choice_is_what_the_model_would_say_of_what_may_be_said():
    run = tiny()
    (answer,) = complete(run, "x", Sampling(temperature=0, choices=("abc", "axy", "q")))
    with torch.no_grad():
        logits = run.model.eval()(torch.tensor([[BYTES.separator, ord("x")]]))[0, -1]
    first = max("aq", key=lambda c: logits[ord(c)])
    assert answer.text[0] == first
    assert answer.logprobs[0] == pytest.approx(logits.log_softmax(-1)[ord(first)].item(), abs=1e-5)  # the model's own


def test_limits_of_sampling_apply_to_what_may_be_said():
    assert len({a.text for a in answers(BYTES, choices=("a", "b", "c"), top_k=1)}) == 1
    assert len({a.text for a in answers(BYTES, choices=("a", "b", "c"), temperature=3.0)}) == 3
    assert {a.text for a in answers(BYTES, choices=("a", "b"), repetition_penalty=2.0, lookup=3)} == {"a", "b"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"choices": ("yes", "what?")}, "'w'.* at offset 0 is not among the"),
        ({"choices": ("yesterday",), "max_tokens": 9}, "may take 10 tokens, one for each byte and one to end, .* leave room for 9"),
        ({"choices": ("yesterday",), "past_context": "stop"}, "leave room for 3"),
    ],
)
def test_choices_that_cannot_be_said_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        answers(CHAR, prompt="n" * 29, **options)


@guided
@KINDS
def test_the_answer_matches_the_expression(tokenizer):
    found = answers(tokenizer, regex=r"(yes|no)+ é?[a-e]{2}")
    assert all(re.fullmatch(r"(yes|no)+ é?[a-e]{2}", a.text) for a in found if a.finish == "stop")
    assert sum(a.finish == "stop" for a in found) > 10 and len({a.text for a in found}) > 5


@guided
def test_the_answer_is_json_of_the_schema():
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["ada", "alan"]}, "born": {"type": "integer", "minimum": 1800, "maximum": 1999}},
        "required": ["name", "born"],
        "additionalProperties": False,
    }
    found = answers(BPE, n=12, json_schema=json.dumps(schema), max_tokens=100)
    for a in found:
        if a.finish == "stop":
            value = json.loads(a.text)
            assert value["name"] in ("ada", "alan") and 1800 <= value["born"] <= 1999 and len(value) == 2
            assert a.text == json.dumps(value, separators=(",", ":"))  # a young model would write blanks without end
    assert sum(a.finish == "stop" for a in found) > 3


@guided
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"regex": "(yes"}, r"^regex='\(yes' cannot be followed: unclosed group; wanted an expression that the whole answer matches"),
        ({"regex": r"a\b"}, r"^regex='a.* cannot be followed: lookarounds not supported.*; wanted an expression"),
        ({"json_schema": "{"}, "^json_schema='{' cannot be followed: .*; wanted a JSON schema, as '{"),
        ({"json_schema": {"type": "thing"}}, "^json_schema=.* cannot be followed: Invalid type: thing; wanted a JSON schema"),
    ],
)
def test_a_rule_that_is_none_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        answers(BYTES, **options)


@guided
def test_an_answer_that_no_token_can_go_on_with_ends_in_words():
    with pytest.raises(ValueError, match="no token can go on as the rule asks"):
        answers(CHAR, regex="yes[0-9]")


@guided
def test_a_rule_ends_where_nothing_can_follow():
    rule = Rules(BYTES).rule(Sampling(regex="abc?"), 9)
    assert rule.allowed().tolist() == [ord("a")] and not rule.advance(ord("a")) and not rule.advance(ord("b"))
    assert rule.allowed().tolist() == [ord("c"), BYTES.separator] and rule.advance(ord("c"))


@guided
def test_a_rule_that_is_left_says_so():
    rule = Rules(BYTES).rule(Sampling(regex="abc"), 9)
    with pytest.raises(ValueError, match="the rule cannot be followed any further"):
        rule.advance(ord("b"))


def test_without_the_package_a_rule_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    for options in ({"regex": "a"}, {"json_schema": "{}"}):
        with pytest.raises(ValueError, match=r"needs the package llguidance: pip install 'andrea\[grammar\]'"):
            answers(BYTES, **options)
