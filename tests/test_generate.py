"""Generation: one row and several, cached and not, inside and past the context, and the text that comes out."""

import json
import math
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from reference import Rereading
from speakers import BYTES, CONTEXT, prompt_of, saying, scripted, tiny
from typer.testing import CliRunner

from andrea import checkpoint, run_folder
from andrea.cli import app
from andrea.config import DataConfig, RunConfig, TrainConfig
from andrea.data.tokenizer import char_tokenizer, train_bpe
from andrea.infer import Sampling, complete, generate
from andrea.infer.cpu import decoder_for, lacking
from andrea.infer.text import TextStream

GREEDY = Sampling(temperature=0, max_tokens=40, ignore_separator=True)


pytestmark = pytest.mark.usefixtures("one_thread")


def quietly(*args, **options):
    """All tokens, where a dropped part of the prompt is expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return list(generate(*args, **options))


# --- the cache, the context -----------------------------------------------------------------------------------------------------------


def last_logits(run, prompt, sampling, **options):
    """What the model said at the last position of each of its passes, and the ids that came of it."""
    seen = []
    hook = run.model.register_forward_hook(lambda _, __, logits: seen.append(logits[:, -1]))
    ids = [t.id for t in quietly(run, prompt, sampling, **options)]
    hook.remove()
    return torch.stack(seen), ids


@pytest.mark.parametrize("length", [1, 6, 17, CONTEXT - 1, CONTEXT, CONTEXT + 1, 3 * CONTEXT])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_greedy_generation_is_the_same_with_and_without_cache_also_past_the_context(length, norm):
    run = tiny(norm=norm)
    cached, ids = last_logits(run, prompt_of(length), GREEDY)
    plain, plain_ids = last_logits(run, prompt_of(length), GREEDY, decoder=Rereading(run.model, 1))
    assert ids == plain_ids and len(ids) == 40
    torch.testing.assert_close(cached, plain, atol=1e-5, rtol=1e-5)  # the order of float32 sums


@pytest.mark.parametrize("context", [1, 2, 7])
def test_a_full_context_drops_its_oldest_half_and_is_read_again(context):
    run, ids = tiny(context=context), prompt_of(1)
    start = 0
    for token in generate(run, ids, replace(GREEDY, max_tokens=23)):
        if len(ids) - start > context:
            start = len(ids) - max(1, context // 2)
        with torch.no_grad():
            logits = run.model.eval()(torch.tensor([ids[start:]]))[0, -1]
        assert token.id == logits.argmax()
        assert token.logprob == pytest.approx(logits.log_softmax(-1)[token.id].item(), abs=1e-5)
        ids.append(token.id)


@pytest.mark.parametrize("past_context", ["recompute", "stop"])
@pytest.mark.parametrize("new", [0, 1, 50])
@pytest.mark.parametrize("length", [CONTEXT - 1, CONTEXT, CONTEXT + 1, 3 * CONTEXT])
def test_the_end_of_the_context_is_never_an_index_error(length, new, past_context):
    run, sampling = tiny(), replace(GREEDY, max_tokens=new, past_context=past_context)
    if past_context == "stop" and length > CONTEXT:
        with pytest.raises(ValueError, match=rf"has {length} tokens and the context holds {CONTEXT}; .*past_context='recompute'"):
            generate(run, prompt_of(length), sampling)
        return
    tokens = quietly(run, prompt_of(length), sampling, n=2)
    wanted = new if past_context == "recompute" else min(new, CONTEXT - length + 1)
    assert [t.row for t in tokens] == [0, 1] * wanted
    assert [t.finish for t in tokens] == [None] * 2 * (wanted - 1) + ["length"] * 2 * (wanted > 0)


@pytest.mark.parametrize("length", [CONTEXT + 1, 3 * CONTEXT])
def test_a_dropped_part_of_the_prompt_is_said_and_the_rest_is_what_is_read(length):
    run = tiny()
    half = CONTEXT // 2
    said = f"has {length} tokens and the context holds {CONTEXT}: its oldest {length - half} were dropped, its newest {half} kept"
    with pytest.warns(UserWarning, match=said):
        whole = list(generate(run, prompt_of(length), GREEDY))
    assert whole == list(generate(run, prompt_of(length)[-half:], GREEDY))


def test_a_prompt_that_fills_the_context_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(generate(tiny(), prompt_of(CONTEXT), GREEDY))) == 40


# --- rows -----------------------------------------------------------------------------------------------------------------------------


def test_a_row_that_stops_does_not_end_the_others():
    run = scripted(97, {BYTES.separator: 0, 98: 0}, *[{99: 0, 100: 0}] * 8)  # the second token is the separator for half of all seeds
    s = Sampling(temperature=1, seed=0, max_tokens=8)
    rows = complete(run, "", s, n=6)
    assert {len(row.ids) for row in rows} == {2, 8}
    assert [row.finish for row in rows] == ["stop" if len(row.ids) == 2 else "length" for row in rows]
    assert rows == [complete(run, "", replace(s, seed=i))[0] for i in range(6)]


@pytest.mark.parametrize("prompt", ["", "Once", prompt_of(CONTEXT)])
def test_row_i_is_what_its_seed_gives_alone(prompt):
    run, s = tiny(), Sampling(temperature=1.5, seed=42, max_tokens=40, ignore_separator=True)
    rows = complete(run, prompt, s, n=3)
    assert [row.ids for row in rows] == [complete(run, prompt, replace(s, seed=42 + i))[0].ids for i in range(3)]
    assert len({row.ids for row in rows}) == 3


def test_without_a_seed_every_answer_is_another_one_and_the_global_generator_is_left_alone():
    run, before = tiny(), torch.get_rng_state()
    answers = [row.ids for _ in range(2) for row in complete(run, "a", Sampling(temperature=2, max_tokens=20), n=2)]
    assert len(set(answers)) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_every_row_ends_once_with_a_finish_and_is_what_it_is_alone():
    run = tiny()
    with torch.no_grad():
        run.model.unembed.weight[BYTES.separator] *= 2
    s = Sampling(temperature=2, seed=1, max_tokens=30, stop=("e",))
    tokens = list(generate(run, "a", s, n=20))
    for row in range(20):
        mine = [t for t in tokens if t.row == row]
        assert mine[-1].finish in ("stop", "length") and not any(t.finish for t in mine[:-1])
        alone = list(generate(run, "a", replace(s, seed=1 + row)))
        assert [(t.id, t.text, t.finish) for t in mine] == [(t.id, t.text, t.finish) for t in alone]
        assert [t.logprob for t in mine] == pytest.approx([t.logprob for t in alone], abs=1e-5)
    assert {t.finish for t in tokens} == {None, "stop", "length"}
    assert len({sum(t.row == row for t in tokens) for row in range(20)}) > 5  # rows left at many moments


def test_no_token_asked_for_yields_nothing():
    assert list(generate(tiny(), "a", Sampling(max_tokens=0), n=2)) == []
    answer, _ = complete(tiny(), "a", Sampling(max_tokens=0), n=2)
    assert (answer.text, answer.ids, answer.logprobs, answer.finish) == ("", (), (), "length")


def test_no_more_is_computed_than_is_asked_for():
    run, passes = tiny(), []
    run.model.register_forward_hook(lambda *_: passes.append(1))
    tokens = generate(run, "a", GREEDY)
    assert not passes
    for wanted in range(1, 4):
        next(tokens)
        assert len(passes) == wanted


def test_the_model_is_evaluated_and_each_module_left_in_its_mode():
    run = tiny(dropout=0.5)
    run.model.train()
    run.model.blocks[0].eval()
    modes = [m.training for m in run.model.modules()]
    tokens = []
    for token in generate(run, "a", GREEDY):
        assert [m.training for m in run.model.modules()] == modes and not torch.is_inference_mode_enabled()
        tokens.append(token)
    run.model.eval()
    assert tokens == list(generate(run, "a", GREEDY))


# --- what may be sampled --------------------------------------------------------------------------------------------------------------


def test_ids_of_a_padded_vocabulary_are_never_sampled():
    run = tiny(vocab_size=BYTES.vocab_size + 63, tied=False)
    with torch.no_grad():
        run.model.unembed.weight[-63:].zero_()
        run.model.unembed.weight[-40] = 1000 * run.model.final_norm.beta
    assert run.model.eval()(torch.tensor([[0]])).argmax() == BYTES.vocab_size + 23  # far above every token
    rows = complete(run, "a", Sampling(temperature=3, seed=0, max_tokens=40, ignore_separator=True), n=20)
    ids = {i for row in rows for i in row.ids}
    assert max(ids) < BYTES.vocab_size and len(ids) > 100
    assert max(complete(run, "a", GREEDY)[0].ids) < BYTES.vocab_size
    assert all(math.isfinite(x) and -50 < x <= 0 for row in rows for x in row.logprobs)  # of the tokenizer's ids alone


def test_logprobs_are_those_of_the_models_own_logits():
    run, s = tiny(), Sampling(temperature=0.5, top_k=5, top_p=0.9, repetition_penalty=1.5, seed=3, max_tokens=10, ignore_separator=True)
    tokens = list(generate(run, "abc", s))
    ids = [BYTES.separator, *b"abc", *(t.id for t in tokens)]
    with torch.no_grad():
        wanted = run.model(torch.tensor([ids]))[0].log_softmax(-1)
    for at, token in enumerate(tokens):
        assert token.logprob == pytest.approx(wanted[3 + at, token.id].item(), abs=1e-5)


def test_the_penalty_counts_prompt_and_answer_but_not_the_separator():
    run = scripted(*[{97: 4.0, 98: 3.0, 99: 2.8}] * 9)
    assert (
        complete(run, "", replace(GREEDY, max_tokens=4, repetition_penalty=1.5))[0].text == "abca"
    )  # 4, 3, 2.8, and then 4 / 1.5 is the largest again
    assert complete(run, "a", replace(GREEDY, max_tokens=1, repetition_penalty=1.5))[0].text == "b"
    run = scripted(*[{97: 1.0, BYTES.separator: 1.1}] * 9)
    assert complete(run, "", replace(GREEDY, max_tokens=1, repetition_penalty=9.0))[0].ids == (BYTES.separator,)


def test_damaged_weights_are_said_to_be_damaged():
    run = tiny()
    run.model.unembed.weight.data[5] = math.nan
    with pytest.raises(ValueError, match="nan or infinity"):
        complete(run, "a")


@pytest.mark.parametrize(
    ("prompt", "n", "said"),
    [
        ("a", 0, "n=0 answers"),
        ([1, BYTES.vocab_size], 1, f"the id {BYTES.vocab_size}; this tokenizer has 0 to {BYTES.vocab_size - 1}"),
        ([-1], 1, "the id -1"),
    ],
)
def test_what_cannot_be_answered_is_refused_at_the_call(prompt, n, said):
    with pytest.raises(ValueError, match=said):
        generate(tiny(), prompt, n=n)


def test_a_tokenizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match=f"the tokenizer has {BYTES.vocab_size} ids, the model 42: they do not belong together"):
        generate(tiny(vocab_size=42), "a")


# --- prompts, stops, text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("", [BYTES.separator]),
        (" ", [BYTES.separator, 32]),
        ([], [BYTES.separator]),
        ((), [BYTES.separator]),
        ([32], [32]),
        (torch.tensor([7, 8]), [7, 8]),
        ("é<|endoftext|>", [BYTES.separator, *"é<|endoftext|>".encode()]),
    ],
)
def test_text_is_opened_by_the_separator_and_ids_are_taken_as_they_are(prompt, read):
    run, seen = tiny(), []
    run.model.register_forward_pre_hook(lambda _, args: seen.append(args[0].tolist()))
    assert len(complete(run, prompt, replace(GREEDY, max_tokens=1))[0].ids) == 1
    assert seen == [[read]]


def test_the_separator_ends_the_answer_and_is_not_printed():
    run = scripted(97, BYTES.separator, 98, 99)
    tokens = list(generate(run, "", Sampling(temperature=0, max_tokens=4)))
    assert [(t.id, t.text, t.finish) for t in tokens] == [(97, "a", None), (BYTES.separator, "", "stop")]


def test_ignoring_the_separator_goes_on_without_printing_it():
    run = scripted(97, BYTES.separator, 98, 99)
    answer = complete(run, "", Sampling(temperature=0, max_tokens=4, ignore_separator=True))[0]
    assert (answer.text, answer.ids, answer.finish) == ("abc", (97, BYTES.separator, 98, 99), "length")


BPE = train_bpe(["alpha beta gamma delta, alpha beta. stop! sto stop? " * 20], 280)
CHAR = char_tokenizer(["alpha beta gamma delta stop!\U0001f389é日"])
KINDS = pytest.mark.parametrize("tokenizer", [BYTES, BPE, CHAR], ids=["byte", "bpe", "char"])


@KINDS
@pytest.mark.parametrize(
    ("said", "stop", "text"),
    [
        ("alpha beta gamma delta", ("beta gamma",), "alpha "),
        ("alpha beta gamma delta", ("gamma", "beta"), "alpha "),
        ("alpha beta gamma delta", ("beta gamma", "beta"), "alpha "),
        ("alpha beta gamma delta", ("a beta gamma", "eta"), "alpha b"),  # the one that is complete first
        ("alpha stop! delta", ("st",), "alpha "),
        ("alpha stop! delta", ("!", "p"), "al"),
        ("alpha beta", ("alpha",), ""),
        ("alpha beta", ("beta",), "alpha "),  # at the very end
        ("aaab", ("aab",), "a"),
    ],
)
def test_the_text_ends_before_a_stop_string_wherever_tokens_are_cut(tokenizer, said, stop, text):
    tokens = list(generate(saying(said, tokenizer), "", Sampling(temperature=0, stop=stop)))
    assert "".join(t.text for t in tokens) == text
    assert tokens[-1].finish == "stop" and tokens[-1].id != tokenizer.separator


@KINDS
@pytest.mark.parametrize("stop", [("beta delta",), ("delta!",), ("\n", "gammas")])
def test_what_looked_like_a_stop_string_is_let_go_of(tokenizer, stop):
    run = saying("alpha beta gamma delta", tokenizer)
    ids = tokenizer.encode("alpha beta gamma delta")
    for limit, finish in ((99, "stop"), (len(ids), "length")):
        answer = complete(run, "", Sampling(temperature=0, stop=stop, max_tokens=limit))[0]
        assert (answer.text, answer.finish) == ("alpha beta gamma delta", finish)


def test_nothing_of_a_possible_stop_string_is_sent_before_it_is_none():
    tokens = list(generate(saying("ab stop! st"), "", Sampling(temperature=0, stop=("stop?",))))
    assert [t.text for t in tokens] == ["a", "b", " ", "", "", "", "", "stop!", " ", "", "", "st"]


@KINDS
def test_a_character_of_several_tokens_arrives_whole(tokenizer):
    text = "a\U0001f389é日"
    tokens = list(generate(saying(text, tokenizer), "", Sampling(temperature=0)))
    assert "".join(t.text for t in tokens) == text == tokenizer.decode([t.id for t in tokens][:-1])
    assert all("\ufffd" not in t.text for t in tokens)


def test_bytes_that_never_make_a_character_are_replaced_at_the_end():
    run = scripted(97, 0xF0, 0x9F, 0x8E, BYTES.separator)
    assert complete(run, "", Sampling(temperature=0))[0].text == "a\ufffd"
    assert complete(run, "", Sampling(temperature=0, max_tokens=3))[0].text == "a\ufffd"


def test_a_character_that_the_prompt_left_incomplete_is_completed():
    run = scripted(0, 0, 0, 0x8E, 0x89, 97)
    assert complete(run, [97, 97, 0xF0, 0x9F], Sampling(temperature=0, max_tokens=3))[0].text == "\U0001f389a"


BITS = st.lists(st.sampled_from([b"a", b"b", "é".encode(), b"\xf0\x9f", b"\x8e", b"\x89", b"\xff"]), max_size=8).map(b"".join)
STOPS = st.lists(st.text("ab\ufffdé", min_size=1, max_size=3), max_size=3).map(tuple)


@example(b"ab\xc3\xa9a", [4], ("b\u00e9a", "\u00e9"))  # the shorter one is complete first
@given(BITS, st.lists(st.integers(0, 12)), STOPS)
def test_text_does_not_depend_on_how_its_bytes_are_cut(data, cuts, stop):
    def through(*pieces):
        stream, sent, stopped = TextStream(stop), "", False
        for at, piece in enumerate(pieces):
            text, stopped = stream.feed(piece, last=at == len(pieces) - 1)
            sent += text
            if stopped:
                break
        return sent, stopped

    full = data.decode("utf-8", "replace")
    sent, stopped = through(data)
    assert stopped == any(s in full for s in stop) and not any(s in sent for s in stop)
    assert full.startswith(sent) and (stopped or sent == full)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert through(*(data[a:b] for a, b in pairwise(bounds)), b"") == (sent, stopped)


# --- the command ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run folder with an untrained model and byte tokens."""
    run, model = tmp_path_factory.mktemp("run"), tiny().model
    run_folder.write_run(
        run, RunConfig(model.config, DataConfig(tokenizer="byte"), train=TrainConfig(batch_tokens=CONTEXT)), {"steps": 1}, {}
    )
    BYTES.save(run / "tokenizer.json")
    checkpoint.save(run, 1, checkpoint.weights(model), {}, {}, best=True)
    return run


def said(folder, prompt, sampling, n=1):
    """What the command will say."""
    run = checkpoint.load(folder)
    return complete(run, prompt, sampling, n, decoder_for(run, slots=n)[0])


def andrea(*arguments, **options):
    return CliRunner().invoke(app, ["generate", *map(str, arguments)], **options)


def test_the_command_prints_the_prompt_the_text_and_how_it_ended(folder):
    answer = said(folder, "Once é", Sampling(seed=5, max_tokens=12))[0]
    result = andrea(folder, "Once é", "--seed", 5, "--max-tokens", 12, "--at", "last", "--device", "cpu")
    assert result.exit_code == 0 and result.stdout == "Once é" + answer.text + "\n"
    assert result.stderr.startswith("finish: length; 12 tokens, ") and result.stderr.endswith(" tokens/s; seed 5\n")


@pytest.mark.parametrize("prompt", [[], ["-"]])
@pytest.mark.parametrize("text", ["", " two\r\nlines é\n"])
def test_the_command_reads_standard_input_as_it_is(folder, prompt, text):
    result = andrea(folder, *prompt, "--max-tokens", 0, "--json", input=text.encode())
    assert json.loads(result.stdout)["prompt"] == text


def test_the_command_refuses_standard_input_that_is_not_utf_8(folder):
    with pytest.raises(ValueError, match="standard input is not UTF-8: byte 2 is 0xff"):
        andrea(folder, "-", input=b"ab\xff", catch_exceptions=False)


def test_the_command_prints_several_answers_one_after_another(folder):
    answers = said(folder, "a", Sampling(seed=5, max_tokens=9), n=2)
    result = andrea(folder, "a", "--seed", 5, "--max-tokens", 9, "-n", 2)
    assert result.stdout == "".join(f"--- {i + 1} of 2, seed {5 + i} ---\na{answers[i].text}\n" for i in range(2))


def test_the_command_prints_one_json_object_that_says_all(folder):
    options = {
        "temperature": 1.5,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "max_tokens": 9,
        "past_context": "stop",
    }
    sampling = Sampling(**options, stop=("x", "yz"), ignore_separator=True, seed=7)
    given = [part for name, value in options.items() for part in ("--" + name.replace("_", "-"), value)]
    result = andrea(folder, "é", *given, "--stop", "x", "--stop", "yz", "--ignore-separator", "--seed", 7, "-n", 2, "--json")
    found = json.loads(result.stdout)
    answers = said(folder, "é", sampling, n=2)
    assert found["prompt"] == "é" and found["prompt_ids"] == [BYTES.separator, *"é".encode()] and found["seed"] == 7
    assert Sampling(**found["sampling"]) == sampling
    assert [(s["text"], tuple(s["ids"]), s["finish_reason"]) for s in found["samples"]] == [(a.text, a.ids, a.finish) for a in answers]
    assert [s["logprobs"] for s in found["samples"]] == [list(a.logprobs) for a in answers]
    assert [s["tokens"] for s in found["samples"]] == [[BYTES.token_bytes(i).decode("utf-8", "replace") for i in a.ids] for a in answers]


def test_without_a_seed_the_command_says_the_one_it_took(folder):
    first, other = (json.loads(andrea(folder, "a", "--json", "--max-tokens", 20).stdout) for _ in range(2))
    again = json.loads(andrea(folder, "a", "--json", "--max-tokens", 20, "--seed", first["seed"]).stdout)
    assert again == first and other["seed"] != first["seed"]


def test_the_command_says_what_was_dropped(folder):
    result = andrea(folder, "a" * 40, "--max-tokens", 1)
    assert "warning: the prompt has 41 tokens and the context holds 32: its oldest 25 were dropped, its newest 16 kept\n" in result.stderr


def test_a_console_that_lacks_a_character_prints_a_question_mark(folder):
    result = CliRunner(charset="ascii").invoke(app, ["generate", str(folder), "-", "--max-tokens", "0"], input="é日".encode())
    assert result.exit_code == 0 and result.stdout == "??\n"


def test_the_command_answers_every_line_of_a_file_in_order(folder, tmp_path):
    lines = ["Once", "", "é two", "x" * 40]
    path = tmp_path / "prompts.txt"
    path.write_bytes("\r\n".join(lines).encode() + b"\n")
    result = andrea(folder, "--prompts", path, "--json", "--seed", 3, "--max-tokens", 6, "-n", 2)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    with pytest.warns(UserWarning, match="oldest 25 were dropped"):
        wanted = [said(folder, line, Sampling(seed=3, max_tokens=6), n=2) for line in lines]
    assert [f["prompt"] for f in found] == lines
    assert [[tuple(s["ids"]) for s in f["samples"]] for f in found] == [[a.ids for a in answers] for answers in wanted]
    assert result.stderr.count("warning: the prompt has 41 tokens") == 1 and "finish: 8 length; 48 tokens, " in result.stderr
    printed = andrea(folder, "--prompts", path, "--seed", 3, "--max-tokens", 6).stdout
    assert printed == "".join(f"--- 1 of 1, seed 3 ---\n{line}{a[0].text}\n" for line, a in zip(lines, wanted, strict=True))


def test_without_a_seed_every_line_of_a_file_draws_anew(folder, tmp_path):
    (tmp_path / "same.txt").write_text("a\na\n", encoding="utf-8")
    one, other = (json.loads(line) for line in andrea(folder, "--prompts", tmp_path / "same.txt", "--json").stdout.splitlines())
    assert one["seed"] != other["seed"] and one["samples"] != other["samples"]


def test_a_line_of_jsonl_has_options_of_its_own(folder, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a\\nb", "max_tokens": 2, "seed": 9}\n{"prompt": "c", "choices": ["yes", "no"]}\n', encoding="utf-8")
    first, second = (json.loads(line) for line in andrea(folder, "--prompts", path, "--json", "--max-tokens", 5).stdout.splitlines())
    assert first["prompt"] == "a\nb" and first["seed"] == 9 and len(first["samples"][0]["ids"]) == 2
    assert second["samples"][0]["text"] in ("yes", "no") and second["sampling"]["choices"] == ["yes", "no"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 cannot be read"),
        ('{"text": "a"}', "line 2 is damaged: prompt is not there; wanted str"),
        ('{"prompt": "a", "temprature": 1}', "line 2 has 'temprature'; known are prompt, temperature, top_k"),
        ('{"prompt": "a", "top_k": -1}', "line 2: top_k=-1 is not a whole number"),
        ('{"prompt": "a", "temperature": "hot"}', "line 2: temperature='hot' is not a finite number"),
        ('{"prompt": "a", "regex": 5}', "line 2: regex=5 is no text of at least one character; leave it out"),
    ],
)
def test_a_line_of_jsonl_that_cannot_be_read_is_named(folder, tmp_path, line, said):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        andrea(folder, "--prompts", tmp_path / "p.jsonl", catch_exceptions=False)


def test_a_file_without_prompts_is_refused(folder, tmp_path):
    (tmp_path / "none.txt").touch()
    with pytest.raises(ValueError, match=r"none\.txt is empty; wanted a prompt on every line"):
        andrea(folder, "--prompts", tmp_path / "none.txt", catch_exceptions=False)


def test_a_prompt_and_a_file_of_prompts_are_too_much(folder, tmp_path):
    with pytest.raises(ValueError, match=r"a prompt and --prompts .* were given"):
        andrea(folder, "a", "--prompts", tmp_path, catch_exceptions=False)


def test_the_command_computes_in_the_precision_asked_for(folder):
    plain, rounded = (
        json.loads(andrea(folder, "ab", "--precision", p, "--seed", 1, "--json").stdout)["samples"][0] for p in ("float32", "bf16")
    )
    assert rounded["logprobs"][0] != plain["logprobs"][0]
    if rounded["ids"][0] == plain["ids"][0]:
        assert rounded["logprobs"][0] == pytest.approx(plain["logprobs"][0], abs=0.1)
    with pytest.raises(ValueError, match="precision 'half' is none of"):
        andrea(folder, "a", "--precision", "half", catch_exceptions=False)


def test_the_command_keeps_to_choices_and_tells_the_likeliest_tokens(folder):
    result = andrea(folder, "Is it?", "--choices", " yes| no", "--json", "--logprobs", 3, "--lookup", 4, "--n", 2, "--max-tokens", 5)
    samples = json.loads(result.stdout)["samples"]
    assert all(s["text"] in (" yes", " no") and s["finish_reason"] == "stop" for s in samples)
    for s in samples:
        assert [len(top) for top in s["top_logprobs"]] == [3] * len(s["ids"])
        assert all(set(t) == {"token", "id", "logprob"} and t["logprob"] <= 0 for top in s["top_logprobs"] for t in top)
        assert all(top[0]["logprob"] >= own for top, own in zip(s["top_logprobs"], s["logprobs"], strict=True))
    assert "finish: 2 stop; " in result.stderr and " guesses held; " in result.stderr
    with pytest.raises(ValueError, match="--logprobs are told with --json"):
        andrea(folder, "a", "--logprobs", 3, catch_exceptions=False)


def test_the_command_reads_a_schema_from_a_file(folder, tmp_path):
    pytest.importorskip("llguidance")
    (tmp_path / "schema.json").write_text('{"enum": [12, "é"]}', encoding="utf-8")
    assert andrea(folder, "a", "--schema", tmp_path / "schema.json", "--json").stdout.count('"finish_reason": "stop"') == 1
    assert json.loads(andrea(folder, "a", "--regex", "[ab]{3}", "--json").stdout)["samples"][0]["text"].strip("ab") == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--choices", ""), "--choices '' has an empty choice; wanted texts with | between them, as 'yes|no'"),
        (("--choices", "yes|"), "--choices 'yes|' has an empty choice"),
        (("--regex", ""), "regex='' is no text of at least one character; leave it out where the answer is free"),
        (("--schema", "none.json"), "--schema none.json: No such file or directory; wanted a JSON schema, as '{"),
        (("--schema", "words.json"), r"--schema words.json cannot be read: Expecting value.*; wanted a JSON schema, as '{"),
        (("--schema", "list.json"), r"--schema list.json cannot be read: it holds \[1\]; .*; wanted a JSON schema, as '{"),
    ],
)
def test_a_rule_that_is_none_is_told_by_its_option(folder, tmp_path, monkeypatch, options, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.json").write_text("no JSON", encoding="utf-8")
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        andrea(folder, "a", *options, catch_exceptions=False)


def test_a_final_space_that_words_bring_themselves_is_noted_and_left_as_it_is(finished_run, folder):
    noted = "note: the prompt ends in a space, and words of this tokenizer bring their own: leave it out\n"
    result = andrea(finished_run, "def ", "--json", "--max-tokens", 1)
    assert noted in result.stderr and json.loads(result.stdout)["prompt"] == "def "
    for run, prompt, *rule in ((finished_run, "def"), (finished_run, "Is it? ", "--choices", "yes|no"), (folder, "def ")):
        assert "note: " not in andrea(run, prompt, *rule, "--max-tokens", 9).stderr


FIRST_TIME = """
from numba import njit
from andrea.cli.generate import compiling_aloud

inner = njit(lambda x: x + 1)
step = njit(cache=True)(lambda x: inner(x))

for _ in range(2):
    with compiling_aloud("int8"):
        step.compile("int64(int64)")
"""


def test_what_takes_seconds_the_first_time_is_said_then_and_only_then(tmp_path):
    """A function of a line stands for the step, which is kept on the disk in the same way."""
    if reason := lacking():
        pytest.skip(reason)
    (tmp_path / "speak.py").write_text(FIRST_TIME, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "speak.py"]
    first, second = (subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True) for _ in range(2))
    assert first.stderr == "compiling the int8 step for this processor, once (5 to 10 s)\n"
    assert second.stderr == ""
