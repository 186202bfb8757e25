"""The engine: many requests at once, each of which has to be what it is alone, and nothing of which may be left when it has gone."""

import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import Rereading
from speakers import BYTES, CONTEXT, Run, prompt_of, saying, scripted, tiny

from andrea.config import ModelConfig
from andrea.data.tokenizer import train_bpe
from andrea.infer import Engine, Full, Sampling, TorchDecoder, answer, complete, generate
from andrea.infer.cpu import CpuDecoder, lacking
from andrea.infer.gpu import SlotDecoder
from andrea.infer.lookup import Lookup
from andrea.infer.quantize import pack
from andrea.model import Transformer

pytestmark = pytest.mark.usefixtures("one_thread")

FREE = Sampling(temperature=1.3, max_tokens=12, ignore_separator=True)
GREEDY = replace(FREE, temperature=0)


def on_cpu(model, slots):
    if reason := lacking():
        pytest.skip(reason)
    return CpuDecoder(pack(model, "float32"), slots, 1)


ON_BOTH = pytest.mark.parametrize("made", [TorchDecoder, on_cpu])


def engine(run, slots=3, made=TorchDecoder, **options):
    return Engine(made(run.model, slots), run.tokenizer, **{"chunk": 4, **options})


def finished(speaker, *sequences):
    """Step until these have ended."""
    while not all(s.finish for s in sequences):
        speaker.step()
    return sequences


def alone(run, prompt, sampling, **options):
    """The same request in an engine of its own."""
    speaker = engine(run, 1, **options)
    (sequence,) = speaker.add(prompt, sampling)
    return finished(speaker, sequence)[0]


def same(one, other):
    """Equal to the last bit: ids, text, log-probabilities, the end."""
    assert one.ids == other.ids and one.tokens == other.tokens and one.finish == other.finish


# --- side by side ---------------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_requests_that_join_and_leave_at_any_step_are_what_they_are_alone(made):
    run = tiny()
    requests = [
        (prompt_of(length, seed), replace(FREE, seed=seed, max_tokens=new, **options))
        for seed, (length, new, options) in enumerate(
            [
                (1, 12, {}),
                (5, 3, {"top_k": 5}),
                (16, 9, {"temperature": 0}),
                (31, 20, {"top_p": 0.8, "repetition_penalty": 1.3}),  # past the context
                (32, 1, {"min_p": 0.1, "logprobs": 3}),
                (70, 40, {}),  # longer than the context, and around it twice
                (9, 12, {"past_context": "stop", "lookup": 4}),
            ]
        )
    ]
    speaker, sequences = engine(run, 3, made), []
    for request in requests:
        sequences += speaker.add(*request)
        speaker.step()
        speaker.step()
    for sequence, request in zip(finished(speaker, *sequences), requests, strict=True):
        same(sequence, alone(run, *request, made=made))
    assert [slot.holder for slot in speaker.scheduler.slots] == [None] * 3 and len(speaker.scheduler) == 0


@ON_BOTH
@pytest.mark.parametrize("slots", [2, 4, 7])
def test_a_seeded_answer_is_the_same_beside_unseeded_ones_which_differ(slots, made):
    run = tiny()
    speaker = engine(run, slots, made)
    others = [speaker.add("abc", FREE)[0] for _ in range(2)]
    (seeded,) = speaker.add("abc", replace(FREE, seed=42))
    others += speaker.add("abc", FREE)
    finished(speaker, seeded, *others)
    same(seeded, alone(run, "abc", replace(FREE, seed=42), made=made))
    assert len({tuple(s.ids) for s in others}) == 3


def test_one_that_stops_leaves_the_others_to_their_limit():
    run = scripted(97, {BYTES.separator: 0, 98: 0}, *[{99: 0, 100: 0}] * 8)  # the second token ends half of all answers
    speaker, s = engine(run, 3), Sampling(temperature=1, max_tokens=8)
    sequences = [speaker.add("", replace(s, seed=seed))[0] for seed in range(3, 6)]
    finished(speaker, *sequences)
    assert {(len(q.tokens), q.finish) for q in sequences} == {(2, "stop"), (8, "length")}
    for seed, sequence in enumerate(sequences, 3):
        same(sequence, alone(run, "", replace(s, seed=seed)))


def test_stop_strings_of_one_answer_are_no_business_of_another():
    run = saying("alpha beta gamma delta")
    speaker = engine(run, 4)
    stops = [("beta gamma",), (), ("gamma", "beta"), ("delta!",)]
    sequences = [speaker.add("", Sampling(temperature=0, stop=stop))[0] for stop in stops]
    finished(speaker, *sequences)
    assert ["".join(t.text for t in s.tokens) for s in sequences] == [
        "alpha ",
        "alpha beta gamma delta",
        "alpha ",
        "alpha beta gamma delta",
    ]
    assert [s.finish for s in sequences] == ["stop"] * 4


def test_what_a_step_tells_is_what_it_added_and_no_character_is_cut():
    run, text = saying("a\U0001f389é日"), "a\U0001f389é日"
    speaker = engine(run, 2)
    speaker.add("", Sampling(temperature=0, max_tokens=40), n=2)
    said = ["", ""]
    while len(speaker.scheduler):
        for sequence in speaker.step():
            assert len(sequence.news) == 1 and sequence.news[0] is sequence.tokens[-1]
            said[sequence.row] += sequence.news[0].text
            assert "\ufffd" not in sequence.news[0].text
    assert said == [text, text] and speaker.step() == []


def test_answers_of_one_prompt_read_it_once_and_begin_together():
    run = tiny()
    speaker = engine(run, slots=3)
    rows = speaker.add(prompt_of(7), replace(FREE, seed=5), n=3)
    assert [s.row for s in speaker.step()] == []  # the first chunk of 4
    assert [s.row for s in speaker.step()] == [0, 1, 2]
    assert speaker.ids_read == 7 and speaker.ids_reused == 14
    for row in finished(speaker, *rows):
        assert row.ids == alone(run, prompt_of(7), replace(FREE, seed=5 + row.row)).ids
    assert len({tuple(row.ids) for row in rows}) == 3


def test_the_likeliest_tokens_are_told_with_the_models_own_log_probabilities():
    run = tiny()
    answer = alone(run, "ab", replace(FREE, temperature=0.3, repetition_penalty=1.5, seed=1, logprobs=5))
    with torch.no_grad():
        wanted = run.model.eval()(torch.tensor([answer.ids]))[0].log_softmax(-1)
    for at, token in enumerate(answer.tokens, 2):
        top = wanted[at].topk(5)
        assert [i for i, _ in token.top] == top.indices.tolist()
        assert [x for _, x in token.top] == pytest.approx(top.values.tolist(), abs=1e-5)
        assert token.logprob == pytest.approx(wanted[at, token.id].item(), abs=1e-5)


# --- prompts --------------------------------------------------------------------------------------------------------------------------


def test_a_long_prompt_stalls_no_running_answer():
    run = tiny()
    speaker = engine(run, 3)
    running = speaker.add("a", replace(GREEDY, max_tokens=30), n=2)
    speaker.step()
    (late,) = speaker.add(prompt_of(30), GREEDY)
    for step in range(1, 9):  # 30 ids are 8 chunks of 4
        before = speaker.ids_read
        moved = speaker.step()
        assert [len(s.tokens) for s in running] == [step + 1] * 2 and moved[:2] == running
        assert 0 < speaker.ids_read - before <= 4
    assert len(late.tokens) == 1


@ON_BOTH
@pytest.mark.parametrize("ended", ["running", "finished", "cancelled"])
def test_a_prompt_begins_with_what_another_has_read_and_answers_the_same(ended, made):
    run, first = tiny(), prompt_of(14)
    speaker = engine(run, 4, made)
    (donor,) = speaker.add(first, replace(FREE, max_tokens=1 if ended == "finished" else 12))
    for _ in range(4):
        speaker.step()
    if ended == "cancelled":
        speaker.cancel(donor)
    prompts = {  # prompt -> ids that another has: whole chunks of 4, and one id is left to read; or all of it
        tuple(first): 14,
        tuple(first[:12]): 8,
        tuple(first[:13]): 12,
        (*first, 1, 2, 3): 12,
        (*first[:9], 200, 201, 202): 8,
        (5, *first): 0,
        tuple(first[:4]): 0,
        tuple(first[:5]): 4,
    }
    for prompt, reused in prompts.items():
        before = speaker.ids_read, speaker.ids_reused
        (sequence,) = speaker.add(prompt, replace(FREE, seed=9))
        finished(speaker, sequence)
        assert (speaker.ids_read - before[0], speaker.ids_reused - before[1]) == (len(prompt) - reused, reused)
        same(sequence, alone(run, prompt, replace(FREE, seed=9), made=made))


def test_what_was_said_is_not_used_as_if_it_had_been_read_in_chunks():
    run = tiny()
    speaker = engine(run, 2)
    (first,) = speaker.add(prompt_of(6), replace(FREE, seed=1))
    finished(speaker, first)
    (second,) = speaker.add([*first.ids, 7], replace(FREE, seed=2))
    finished(speaker, second)
    assert speaker.ids_reused == 4
    same(second, alone(run, [*first.ids, 7], replace(FREE, seed=2)))


def test_the_slot_unused_for_longest_is_forgotten_first():
    run, speaker = tiny(), engine(tiny(), slots=2)
    one = replace(GREEDY, max_tokens=1)
    for prompt in ([1] * 9, [2] * 9, [1] * 10, [3] * 9):  # the third is given to the slot of 1 or 2, the fourth to the other
        finished(speaker, *speaker.add(prompt, one))
    before = speaker.ids_reused
    finished(speaker, *speaker.add([1] * 9, one))
    assert speaker.ids_reused - before == 8
    (sequence,) = speaker.add([2] * 9, one)
    finished(speaker, sequence)
    assert speaker.ids_reused - before == 8
    same(sequence, alone(run, [2] * 9, one))


@ON_BOTH
def test_nothing_of_an_answer_past_the_context_is_used_for_another(made):
    run, prompt = tiny(), prompt_of(20)
    speaker = engine(run, 2, made)
    (first,) = speaker.add(prompt, replace(FREE, seed=1, max_tokens=60))
    for _ in range(40):
        speaker.step()
    (second,) = speaker.add(prompt, replace(FREE, seed=2))
    finished(speaker, first, second)
    assert first.start > 0 and speaker.ids_reused == 0
    same(first, alone(run, prompt, replace(FREE, seed=1, max_tokens=60), made=made))
    same(second, alone(run, prompt, replace(FREE, seed=2), made=made))


@pytest.mark.parametrize(("length", "new", "said"), [(1000, 500, 25), (1000, 10, 10), (1024, 5, 1), (1000, 0, 0)])
def test_a_prompt_is_never_cut_to_make_room_for_the_answer(length, new, said):
    run = tiny(context=1024)
    ids = prompt_of(length)
    sequence = alone(run, ids, replace(GREEDY, max_tokens=new, past_context="stop"), chunk=256)
    assert len(sequence.tokens) == said and sequence.finish == "length" and sequence.ids[:length] == ids and sequence.start == 0


# --- leaving --------------------------------------------------------------------------------------------------------------------------


@ON_BOTH
@pytest.mark.parametrize("when", ["waiting", "reading", "running"])
def test_a_cancelled_answer_frees_its_slot_before_the_next_step(when, made):
    run = tiny()
    speaker = engine(run, 1, made, waiting=1)
    (first,) = speaker.add(prompt_of(12), replace(FREE, max_tokens=500))
    for _ in range({"waiting": 0, "reading": 2, "running": 5}[when]):
        speaker.step()
    (next_,) = speaker.add("b", replace(FREE, seed=3, max_tokens=2))
    assert len(first.tokens) == {"waiting": 0, "reading": 0, "running": 3}[when]
    speaker.cancel(first)
    speaker.cancel(first)
    assert first.finish == "cancelled" and all(slot.holder is None for slot in speaker.scheduler.slots)
    assert [next_] == speaker.step() and len(next_.tokens) == 1
    finished(speaker, next_)
    same(next_, alone(run, "b", replace(FREE, seed=3, max_tokens=2), made=made))
    speaker.cancel(next_)
    assert next_.finish == "length" and speaker.finished == {"cancelled": 1, "length": 1}


def test_one_may_be_cancelled_while_the_others_are_being_told():
    speaker = engine(tiny(), slots=2)
    one, other = speaker.add("a", FREE, n=2)
    for sequence in speaker.step():
        if sequence is one:
            speaker.cancel(other)
    assert speaker.step() == [one] and len(other.tokens) == 1


def test_more_than_there_is_room_for_is_refused_and_changes_nothing():
    run = tiny()
    speaker = engine(run, slots=2, waiting=1)
    first = speaker.add("a", FREE, n=2)
    speaker.step()
    with pytest.raises(Full, match=r"2 more answers do not fit: 2 are asked for, in 2 slots, of 3 at most; ask again when some have ended"):
        speaker.add("b", FREE, n=2)
    third = speaker.add("b", replace(FREE, seed=1))
    with pytest.raises(Full, match="1 more answers do not fit: 3 are asked for"):
        speaker.add("c", FREE)
    finished(speaker, *first, *third)
    same(third[0], alone(run, "b", replace(FREE, seed=1)))
    assert speaker.finished == {"length": 3}


@pytest.mark.parametrize("options", [{"chunk": 0}, {"waiting": -1}])
def test_an_engine_that_could_do_nothing_is_refused(options):
    with pytest.raises(ValueError, match="wanted at least 1 id"):
        engine(tiny(), **options)


def test_a_decoder_has_at_least_one_slot():
    with pytest.raises(ValueError, match="slots=0"):
        TorchDecoder(tiny().model, 0)


@ON_BOTH
def test_one_broken_answer_ends_with_its_error_and_poisons_nothing(made):
    run = tiny(tied=False)
    run.model.token_embed.weight.data[200] = math.nan  # the id 200 is the only damaged place
    speaker = engine(run, 2, made)
    (broken,), (sound,) = speaker.add([1, 200, 3], FREE), speaker.add("a", replace(FREE, seed=1))
    finished(speaker, broken, sound)
    assert broken.finish == "error" and "nan or infinity" in str(broken.error) and broken.tokens == []
    later = [speaker.add(prompt_of(9, seed=4), replace(FREE, seed=2), n=2) for _ in range(2)]
    if 200 in (i for s in (sound, *finished(speaker, *later[0], *later[1])) for i in s.ids):
        pytest.fail("another seed is needed: this one says the damaged id")
    same(sound, alone(run, "a", replace(FREE, seed=1), made=made))
    same(later[1][0], alone(run, prompt_of(9, seed=4), replace(FREE, seed=2), made=made))
    assert speaker.finished == {"error": 1, "length": 5}


def test_no_tokens_asked_for_is_an_answer_at_once():
    speaker = engine(tiny())
    (sequence,) = speaker.add("a", replace(FREE, max_tokens=0))
    assert sequence.finish == "length" and len(speaker.scheduler) == 0 and speaker.step() == []


# --- guesses --------------------------------------------------------------------------------------------------------------------------


def test_a_guess_is_what_followed_the_last_time():
    lookup, ids = Lookup(), [1, 2, 3, 4, 1, 2, 3]
    assert lookup.guess(ids, 2) == [4, 1] and lookup.guess(ids, 6) == [4, 1, 2, 3, 4, 1] and lookup.guess(ids, -1) == []
    assert lookup.guess([*ids, 5], 4) == [] and lookup.guess([*ids, 5, 9, 1, 2, 3], 1) == [5]
    assert Lookup().guess([1], 4) == Lookup().guess([], 4) == []


def repeating(period, context=256):
    """A model that says the same `period` bytes again and again."""
    return scripted(*[97 + p % period for p in range(context)], context=context)


def test_guesses_save_steps_and_are_counted():
    speaker = engine(repeating(5), slots=1)
    (sequence,) = speaker.add("", replace(GREEDY, max_tokens=100, lookup=8))
    steps = 0
    while not sequence.finish:
        speaker.step()
        steps += 1
    assert "".join(t.text for t in sequence.tokens) == "abcde" * 20
    assert speaker.held == speaker.guessed and steps == 100 - speaker.held  # every guess held, and each saved a step
    assert steps == 7 + 11  # the first guesses come after a period and two ids; then 9 ids a step are said, 3 in the last


@ON_BOTH
@pytest.mark.parametrize("lookup", [1, 3, 10])
@pytest.mark.parametrize("temperature", [0, 0.2])
def test_guesses_change_no_answer(lookup, temperature, made):
    run = tiny()
    speaker = engine(run, 1, made)
    for seed in range(12):
        prompt = prompt_of(3 + seed, seed) * 2
        s = replace(FREE, temperature=temperature, seed=seed, max_tokens=40, repetition_penalty=1 + seed % 2 / 10, stop=("\x07",))
        same(alone(run, prompt, s, made=made), *finished(speaker, *speaker.add(prompt, replace(s, lookup=lookup))))
    assert speaker.held > 20 and speaker.guessed >= speaker.held + 20 * (temperature > 0)


# --- ten thousand ---------------------------------------------------------------------------------------------------------------------


def kept(decoder):
    """Where a decoder's keys and values stand, and how many numbers they are."""
    if isinstance(decoder, TorchDecoder):
        return [(x.data_ptr(), x.numel()) for cache in decoder.caches for layer in cache for x in (layer.k, layer.v)]
    return [(x.ctypes.data, x.size) for x in (decoder.room.keys, decoder.room.values)]


@pytest.mark.parametrize("made", [on_cpu])
def test_ten_thousand_random_requests_leave_nothing_behind(made):
    """Slots and memory are those of the beginning, every end has its reason, and those looked at are what they are alone."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(BYTES.vocab_size, 8, n_layer=1, n_head=1, d_model=8)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
        model.position_embed.weight *= 5
        model.token_embed.weight[BYTES.separator] *= 2  # which is said often
    run, rng = Run(model, BYTES), random.Random(0)
    speaker = engine(run, 4, made, waiting=8, chunk=3)
    memory = kept(speaker.decoder)
    scheduler, live, ended, refused = speaker.scheduler, [], Counter(), 0
    prompts = [prompt_of(length, seed) for seed, length in enumerate([1, 2, 3, 5, 7, 7, 8, 9, 20])]

    def check(request, sequence):
        tokens = sequence.tokens
        said = BYTES.decode(t.id for t in tokens)
        stopped = tokens and (tokens[-1].id == BYTES.separator or any(s in said for s in sequence.sampling.stop))
        assert sequence.finish == ("stop" if stopped else "length") and (stopped or len(tokens) == sequence.limit)
        assert [t.finish for t in tokens] == [None] * (len(tokens) - 1) + [sequence.finish] * bool(tokens)
        if rng.random() < 0.02:
            same(sequence, alone(run, *request, made=made, chunk=3))

    taken = 0
    while taken < 10_000 or live:
        for _ in range(rng.randrange(5)):
            sampling = Sampling(
                temperature=rng.choice([0, 0.7, 1.5]),
                seed=rng.randrange(1000),
                max_tokens=rng.choice([0, 1, 2, 3, 12] if rng.random() < 0.3 else [1, 2]),
                stop=rng.choice([(), (), ("a", "bc", "\ufffd")]),
                past_context=rng.choice(["recompute", "stop"]),
                lookup=rng.choice([0, 0, 2]),
            )
            request = rng.choice(prompts[:7] if sampling.past_context == "stop" else prompts), sampling
            room = scheduler.most - len(scheduler)
            if taken == 10_000:
                break
            try:
                (sequence,) = speaker.add(*request)
            except Full:
                assert sampling.max_tokens and not room
                refused += 1
            else:
                taken += 1
                live.append((request, sequence))
        told = speaker.step()
        assert all(s.news or s.finish for s in told) and len(scheduler) <= scheduler.most
        holders = [slot.holder for slot in scheduler.slots if slot.holder]
        assert holders == sorted([*scheduler.reading, *scheduler.running], key=lambda s: s.slot)
        if rng.random() < 0.2 and live:
            _, victim = rng.choice(live)
            was = victim.finish
            speaker.cancel(victim)
            assert victim.finish == (was or "cancelled") and victim.slot == -1
        for request, sequence in live:
            if sequence.finish:
                ended[sequence.finish] += 1
                if sequence.finish != "cancelled":
                    check(request, sequence)
        live = [(request, sequence) for request, sequence in live if not sequence.finish]
    assert speaker.finished == ended and ended.total() == taken == 10_000 and set(ended) == {"stop", "length", "cancelled"}
    assert min(ended.values()) > 300 and refused > 300 and speaker.ids_reused > 3000
    assert not scheduler.waiting and not scheduler.reading and not scheduler.running
    assert all(slot.holder is None and len(slot.ids) <= 8 for slot in scheduler.slots)
    assert memory == kept(speaker.decoder)


# --- many prompts ---------------------------------------------------------------------------------------------------------------------


def test_many_prompts_are_answered_in_their_order():
    run = tiny()
    speaker = engine(run, slots=2, waiting=2)
    requests = [("abc"[: i % 4], replace(FREE, seed=i, max_tokens=1 + 7 * i % 5)) for i in range(9)]
    found = list(filter(None, answer(speaker, iter(requests), n=2)))
    assert [a.ids for a in found] == [a.ids for r in requests for a in complete(run, *r, n=2)]
    assert list(answer(speaker, [])) == []


def test_however_many_answers_are_asked_for_few_are_on_their_way():
    run = tiny()
    speaker = engine(run, slots=2, waiting=1)
    first = filter(None, answer(speaker, [("abc", replace(FREE, seed=3)), ("d", FREE)], n=10**9))
    assert [next(first).ids for _ in range(5)] == [a.ids for a in complete(run, "abc", replace(FREE, seed=3), n=5)]
    assert len(speaker.scheduler) <= 3


def test_a_prompt_among_many_that_cannot_be_answered_is_named():
    run = tiny()
    with pytest.raises(ValueError, match=f"prompt 2: the prompt has {CONTEXT + 1} tokens"):
        list(answer(engine(run), [("a", FREE), ("b" * CONTEXT, replace(FREE, past_context="stop"))]))
    run.model.unembed.weight.data[5] = math.nan
    with pytest.raises(ValueError, match=r"prompt 1: .*nan or infinity"):
        list(answer(engine(run), [("a", FREE)]))
    with pytest.raises(ValueError, match=r"^the logits hold nan or infinity"):
        list(answer(engine(run), [("a", FREE)], named=False))
    with pytest.raises(ValueError, match="n=0 answers were asked for"):
        list(answer(engine(run), [("a", FREE)], n=0))


# --- decoders -------------------------------------------------------------------------------------------------------------------------


def on_slots(model, slots):
    return SlotDecoder(model, slots, compiled=False)


@pytest.mark.parametrize("made", [TorchDecoder, on_cpu, on_slots])
@pytest.mark.parametrize("options", [{}, {"positions": "rotary"}, {"norm": "post", "residual": False}])
def test_a_decoder_gives_what_one_full_pass_gives(options, made):
    run, ids = tiny(**options), prompt_of(20)
    decoder, plain = made(run.model, 3), Rereading(run.model, 3)
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-5)  # logits of size 10, float32 sums in another order
    for slot, length in ((0, 7), (2, 1)):
        close(decoder.extend(slot, ids[:length], 0), plain.extend(slot, ids[:length], 0))
    for d in (decoder, plain):
        d.copy(0, 1, 5)
    calls = [([0, 1, 2], [1, 2, 3], [7, 5, 1]), ([1, 1, 0, 1], [4, 5, 6, 7], [6, 7, 8, 8]), ([0], [9], [3]), ([2], [9], [2])]
    for call in calls:
        close(decoder.step(*call), plain.step(*call))
    plain.extend(1, ids, 0)
    decoder.extend(1, ids, 0)
    again = [1] * (CONTEXT - 20), [*range(CONTEXT - 20)], [*range(20, CONTEXT)]
    close(decoder.step(*again), plain.step(*again))


def test_the_decoder_of_a_gpu_answers_as_the_plain_one():
    run = tiny(positions="rotary")
    speaker = engine(run, 3, on_slots)
    sequences = [speaker.add(prompt_of(n), replace(GREEDY, max_tokens=40, lookup=n % 3))[0] for n in (1, 7, 20, 50)]
    for sequence, n in zip(finished(speaker, *sequences), (1, 7, 20, 50), strict=True):
        assert sequence.ids == alone(run, prompt_of(n), replace(GREEDY, max_tokens=40)).ids


def test_generate_takes_the_decoder_it_is_given():
    run = tiny()
    decoder = Rereading(run.model, 2)
    assert [t.id for t in generate(run, "a", GREEDY, n=2, decoder=decoder)] == [t.id for t in generate(run, "a", GREEDY, n=2)]
    assert len(decoder.ids[1]) == 13


BPE = train_bpe(["yes yesterday no nothing, yes and no. " * 20], 290)
