"""A whole run, from text to a model that is kept."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag

import pytest
import torch
from conftest import small

from andrea import checkpoint, run_folder
from andrea.config import override
from andrea.data.prepare import prepare
from andrea.data.sampler import Sampler
from andrea.evaluate import evaluate
from andrea.training import plan
from andrea.training.history import list_runs
from andrea.training.loop import Diverged
from andrea.training.report import (
    Chosen,
    Evaluated,
    Finished,
    Log,
    Observed,
    Prepared,
    Sampled,
    Saved,
    StepDone,
    Stopped,
    Working,
    read_metrics,
)
from andrea.training.schedule import rate
from andrea.training.start import resume, train


def pick(events, kind):
    return [event for event in events if isinstance(event, kind)]


def losses(run):
    return [(m["step"], m["loss"], m["grad_norm"], m["lr"]) for m in read_metrics(run) if m["event"] == "StepDone"]


def same_weights(a, b):
    first, second = (checkpoint.load(run, at="last").model.state_dict() for run in (a, b))
    return all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_tells_everything_in_order(tmp_path, text_file):
    events = list(train(small(text_file), tmp_path / "run"))
    kinds = [type(event) for event in events if not isinstance(event, Working)]
    assert kinds[:5] == [Prepared, Chosen, Evaluated, Observed, Sampled]
    assert kinds[-2:] == [Evaluated, Finished]
    assert [e.step for e in pick(events, StepDone)] == list(range(1, 13))
    assert [e.tokens for e in pick(events, StepDone)] == [256 * n for n in range(1, 13)]
    assert len({e.text for e in pick(events, Sampled)}) > 1  # it says something else as it learns
    assert pick(events, Saved)[-1].step == 12


def test_a_run_learns(tmp_path, text_file):
    config = small(text_file, changes=("tokenizer=byte", "steps=60"))
    events = list(train(config, tmp_path / "run"))
    first, last = pick(events, Evaluated)[0], events[-1]
    assert first.loss == pytest.approx(math.log(257), abs=0.15)  # untrained: every byte about equally likely
    assert last.loss < 3.5  # below the 3.6 nats that the frequencies of English letters and indentation alone would leave


def test_the_final_loss_is_that_of_the_saved_model_on_the_whole_split(finished_run):
    run = checkpoint.load(finished_run, at="last")
    data = run.open_data()
    measured = evaluate(run.model, data.val, data.tokenizer)
    told = [m for m in read_metrics(finished_run) if m["event"] == "Evaluated"][-1]
    assert told["whole"] is True
    assert told["targets"] == measured.targets == len(data.val) - 1
    assert told["loss"] == pytest.approx(measured.loss, abs=1e-6)
    assert told["bits_per_byte"] == pytest.approx(measured.loss * measured.targets / math.log(2) / data.report["val"]["bytes"], rel=1e-6)


def test_the_run_folder_holds_what_its_page_says(finished_run):
    stored = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    assert stored["resolved"].keys() == {"device", "dtype", "compile", "threads", "kernels", "recompute", "micro_batch", "steps"}
    assert stored["config"]["model"]["vocab_size"] == 321
    assert len(stored["provenance"]["data"]) == 64
    last = (finished_run / "last").read_text(encoding="utf-8").strip()
    names = {p.name for p in (finished_run / "checkpoints" / last).iterdir()}
    assert names == {"model.safetensors", "train.safetensors", "state.json", "manifest.json"}
    assert "--- step 0 ---" in (finished_run / "samples.txt").read_text(encoding="utf-8")
    assert not list(finished_run.rglob("*.partial"))


def test_the_same_seed_gives_the_same_losses_bit_for_bit(tmp_path, text_file):
    config = small(text_file, changes=("dropout=0.1",))
    for name in ("a", "b"):
        list(train(config, tmp_path / name))
    list(train(replace(config, train=replace(config.train, seed=1)), tmp_path / "c"))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


@pytest.mark.parametrize(("stop_after", "more"), [(1, ()), (5, ("kernels=auto", "recompute=on")), (11, ())])
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path, text_file, stop_after, more):
    config = small(text_file, changes=("dropout=0.1", "micro_batch=2", *more))
    list(train(config, tmp_path / "straight"))
    stop = Flag()
    events = []
    for event in train(config, tmp_path / "stopped", stop):
        events.append(event)
        if isinstance(event, StepDone) and event.step == stop_after:
            stop.set()
    assert events[-1] == Stopped(stop_after, tmp_path / "stopped")
    events = list(resume(tmp_path / "stopped"))
    assert pick(events, Chosen)[0].first_step == stop_after
    assert isinstance(events[-1], Finished)
    assert losses(tmp_path / "stopped") == losses(tmp_path / "straight")
    assert same_weights(tmp_path / "stopped", tmp_path / "straight")


@pytest.mark.parametrize("changes", [(), ("positions=rotary", "init=zero", "dtype=bfloat16"), ("optim.name=adamw", "dtype=float32")])
def test_a_run_that_was_killed_goes_on_from_its_checkpoint_without_telling_a_step_twice(tmp_path, text_file, changes):
    config = small(text_file, changes=("save_every=4", "evaluate_every=100", "sample_every=2", *changes))
    list(train(config, tmp_path / "straight"))
    for event in train(config, tmp_path / "killed"):
        if isinstance(event, StepDone) and event.step == 7:
            break  # steps 5 to 7 stand in metrics.jsonl but in no checkpoint
    with (tmp_path / "killed/metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"event": "StepDone", "st')  # and the last line is torn
    list(resume(tmp_path / "killed"))
    assert (tmp_path / "killed/samples.txt").read_bytes() == (tmp_path / "straight/samples.txt").read_bytes()
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")
    assert same_weights(tmp_path / "killed", tmp_path / "straight")


@pytest.mark.parametrize("parts", ["micro_batch=8", "micro_batch=2"])
@pytest.mark.parametrize("stop_after", [9, 12])
def test_every_window_comes_once_an_epoch_wherever_the_run_was_stopped(tmp_path, monkeypatch, parts, stop_after):
    """Two epochs and a half, of ten windows and eight a step: epochs end within steps, and the stop is within an epoch."""
    (tmp_path / "short.txt").write_bytes(bytes(97 + n % 26 for n in range(400)))
    read, honest = [], Sampler.starts
    monkeypatch.setattr(Sampler, "starts", lambda self, *at: read.append(honest(self, *at)) or read[-1])
    config = small(tmp_path / "short.txt", changes=("tokenizer=byte", "steps=25", "evaluate_every=100", "sample_every=100", parts))
    config = override(config, "data.val_fraction=0.1")
    sampler = None
    stop = Flag()
    for event in train(config, tmp_path / "run", stop):
        if isinstance(event, StepDone) and event.step == stop_after:
            stop.set()
    list(resume(tmp_path / "run"))
    sampler = Sampler(checkpoint.load(tmp_path / "run").open_data().train, config.model.context, config.train.seed)
    starts = [start for batch in read for start in batch.tolist()]
    assert len(starts) == 25 * config.rows
    each = sampler.windows_per_epoch
    epochs = [starts[i : i + each] for i in range(0, len(starts) - each, each)]
    assert len(epochs) > 2
    for epoch in epochs:
        assert sorted((start - min(epoch)) // config.model.context for start in epoch) == list(range(each))


def test_a_run_of_the_first_version_goes_on_by_the_optimizer_it_began_with(tmp_path, text_file):
    stop = Flag()
    for event in train(small(text_file, changes=("optim.name=adamw",)), tmp_path / "run", stop):
        if isinstance(event, StepDone) and event.step == 5:
            stop.set()
    path = tmp_path / "run/run.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    del stored["config"]["optim"]["name"], stored["config"]["optim"]["matrix_lr"], stored["config"]["model"]["positions"]
    del stored["resolved"]["kernels"]
    path.write_text(json.dumps(stored), encoding="utf-8")
    events = list(resume(tmp_path / "run"))
    assert {c.name: c.value for c in pick(events, Chosen)[0].choices}["kernels"] == "torch"
    assert isinstance(events[-1], Finished)


def test_a_run_with_kernels_for_a_gpu_goes_on_where_none_is(tmp_path, text_file, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    stop = Flag()
    for event in train(small(text_file), tmp_path / "run", stop):
        if isinstance(event, StepDone) and event.step == 5:
            stop.set()
    path = tmp_path / "run/run.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["resolved"]["kernels"] = "triton"
    path.write_text(json.dumps(stored), encoding="utf-8")
    events = list(resume(tmp_path / "run"))
    assert {c.name: c.value for c in pick(events, Chosen)[0].choices}["kernels"] == "cpu"
    assert isinstance(events[-1], Finished)


def test_accumulating_changes_nothing_but_rounding(tmp_path, text_file):
    for micro in (1, 8):
        list(train(small(text_file, changes=(f"micro_batch={micro}", "dtype=float32")), tmp_path / str(micro)))
    a, b = losses(tmp_path / "1"), losses(tmp_path / "8")
    assert [x[1] for x in a] == pytest.approx([x[1] for x in b], abs=1e-4)  # float32 sums in another order, through 12 AdamW steps


def test_a_finished_run_says_that_it_is_finished(finished_run):
    with pytest.raises(ValueError, match="is finished: 12 of 12 steps done"):
        next(resume(finished_run))


def test_a_run_is_made_longer_by_a_stated_rule(tmp_path, text_file):
    config = small(text_file, changes=("save_every=4",))
    stop = Flag()
    for event in train(config, tmp_path / "run", stop):
        if isinstance(event, StepDone) and event.step == 6:
            stop.set()
    events = []
    for event in resume(tmp_path / "run", steps=30):
        events.append(event)
        if isinstance(event, StepDone) and event.step == 14:
            break  # killed: the new end stands in run.json
    assert pick(events, Chosen)[0].notes[-1] == "longer: to step 30; the learning rate goes on at 100.0% of its peak, where it was 100.0%"
    events += resume(tmp_path / "run")
    assert pick(events, StepDone)[-1].step == events[-1].step == 30
    told = [m["lr"] for m in read_metrics(tmp_path / "run") if m["event"] == "StepDone"]
    assert len(told) == 30
    assert told == [rate(step, ((0, 12, True), (6, 30, False)), config.optim) for step in range(30)]
    assert list_runs(tmp_path)[0]["state"] == "finished"
    with pytest.raises(ValueError, match="goes to step 30 as it is; --steps 20 would not make it longer"):
        next(resume(tmp_path / "run", steps=20))


def test_a_finished_run_is_made_longer_only_with_a_warm_up(tmp_path, text_file):
    list(train(small(text_file, changes=("steps=100", "evaluate_every=100")), tmp_path / "run"))
    with pytest.raises(ValueError, match="--rewarm is for a run that is made longer"):
        next(resume(tmp_path / "run", rewarm=True))
    with pytest.raises(ValueError, match=r"has fallen to 2\.4% of its peak"):
        next(resume(tmp_path / "run", steps=200, rewarm=False))
    events = list(resume(tmp_path / "run", minutes=0.005, rewarm=True))
    steps = run_folder.read_run(tmp_path / "run")[1]["steps"]
    assert steps > 100
    assert [e.step for e in pick(events, StepDone)] == list(range(101, steps + 1))
    assert isinstance(events[-1], Finished)


def test_a_run_that_was_killed_before_its_first_save_begins_again(tmp_path, text_file):
    config = small(text_file, changes=("dropout=0.1",))
    list(train(config, tmp_path / "straight"))
    for event in train(config, tmp_path / "killed"):
        if isinstance(event, StepDone) and event.step == 3:
            break
    assert not (tmp_path / "killed/checkpoints").exists()
    events = list(resume(tmp_path / "killed"))
    assert "nothing whole was saved: from the beginning" in pick(events, Chosen)[0].notes
    clocks = ("seconds", "tokens_per_s")
    told = [[{k: v for k, v in m.items() if k not in clocks} for m in read_metrics(tmp_path / name)] for name in ("straight", "killed")]
    assert told[0] == told[1]
    assert same_weights(tmp_path / "straight", tmp_path / "killed")


def test_a_run_that_ended_before_its_last_evaluation_is_given_it(tmp_path, text_file, finished_run):
    for event in train(small(text_file), tmp_path / "run"):
        if isinstance(event, Saved) and event.step == 12:
            break
    events = list(resume(tmp_path / "run"))
    assert [type(event) for event in events] == [Chosen, Working, Evaluated, Finished]
    assert events[-1].loss == [m for m in read_metrics(finished_run) if m["event"] == "Evaluated"][-1]["loss"]


def test_a_time_budget_becomes_a_number_of_steps(tmp_path, text_file):
    events = list(train(small(text_file, changes=("steps=none", "minutes=0.02")), tmp_path / "run"))
    chosen = pick(events, Chosen)[0]
    assert chosen.steps == len(pick(events, StepDone)) == json.loads((tmp_path / "run/run.json").read_text())["config"]["train"]["steps"]
    assert any(c.name == "steps" and "tokens/s" in c.reason for c in chosen.choices)


def test_a_prepared_folder_is_used_where_it_lies_and_must_not_change(tmp_path, text_file):
    prepare(small(text_file).data, 321, tmp_path / "prepared")
    list(train(small(tmp_path / "prepared"), tmp_path / "run"))
    assert run_folder.open_data(tmp_path / "run").folder.samefile(tmp_path / "prepared")
    assert losses(tmp_path / "run")
    report = tmp_path / "prepared" / "data.json"
    stored = json.loads(report.read_text(encoding="utf-8"))
    report.write_text(json.dumps({**stored, "fingerprint": "0" * 64}), encoding="utf-8")
    with pytest.raises(ValueError, match="has changed since"):
        run_folder.open_data(tmp_path / "run")


def test_a_text_that_cannot_be_used_leaves_no_folder(tmp_path):
    (tmp_path / "short.txt").write_text("too short", encoding="utf-8")
    with pytest.raises(ValueError, match="33"):
        list(train(small(tmp_path / "short.txt"), tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match="missing"):
        list(train(small(tmp_path / "missing.txt"), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_existing_folder_is_left_alone(tmp_path, text_file):
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="never overwritten"):
        list(train(small(text_file), tmp_path / "mine"))
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_device_that_is_not_there_is_refused(tmp_path, text_file):
    with pytest.raises(ValueError, match="device 'tpu' is not there; this machine has cpu"):
        list(train(small(text_file, changes=("device=tpu",)), tmp_path / "run"))


def test_without_a_compiler_a_compiled_run_is_an_eager_run(tmp_path, text_file, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent")
    chosen = pick(train(small(text_file, changes=("compile=on",)), tmp_path / "on"), Chosen)[0]
    assert any(c.name == "compile" and c.value is False and "no C++ compiler" in c.reason for c in chosen.choices)
    list(train(small(text_file), tmp_path / "off"))
    assert losses(tmp_path / "on") == losses(tmp_path / "off")


def test_what_an_epoch_leaves_out_is_told(tmp_path, text_file):
    config = small(text_file, changes=("steps=1", "tokenizer=byte"))
    chosen = pick(train(config, tmp_path / "run"), Chosen)[0]
    n = len(run_folder.open_data(tmp_path / "run").train)
    windows = (n - 32) // 32
    assert chosen.notes[0] == f"epoch: {windows:,} windows of 32 tokens; {n - 1 - 32 * windows} left out, others each time"


def test_tensorboard_reads_the_losses_back(finished_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(finished_run / "tensorboard")).Reload()
    told = [m for m in read_metrics(finished_run) if m["event"] == "StepDone"]
    drawn = board.Scalars("train/loss")
    assert [e.step for e in drawn] == [m["step"] for m in told]
    assert [e.value for e in drawn] == pytest.approx([m["loss"] for m in told])
    assert {"validation/loss", "validation/bits_per_byte", "train/lr"} <= set(board.Tags()["scalars"])


def test_the_optimizer_moves_at_the_scheduled_rate(tmp_path, text_file):
    """AdamW's first update is lr * sign(gradient), and the first rate of a warm-up of 10 steps is a tenth of the peak."""
    config = small(text_file, changes=("steps=20", "lr=1e-3", "weight_decay=0", "save_every=1"))
    for event in train(config, tmp_path / "run"):
        if isinstance(event, Saved):
            break
    moved = checkpoint.load(tmp_path / "run", at="last").model.final_norm.beta.abs()  # from 0
    assert moved.max().item() == pytest.approx(1e-4, rel=1e-3)


def test_best_names_the_lowest_of_the_evaluations(tmp_path, text_file):
    list(train(small(text_file, changes=("steps=40", "evaluate_every=2", "lr=0.03")), tmp_path / "run"))
    told = [m for m in read_metrics(tmp_path / "run") if m["event"] == "Evaluated" and m["step"] and not m["whole"]]
    lowest = min(told, key=lambda m: m["loss"])
    assert checkpoint.load(tmp_path / "run").step == lowest["step"]
    assert [m["step"] for m in told if m["best"]][-1] == lowest["step"]


def test_a_stop_at_an_evaluation_leaves_out_no_more_than_any_other(tmp_path, text_file):
    config = small(text_file, changes=("evaluate_every=5", "sample_every=5", "save_every=100", "dtype=bfloat16"))
    list(train(config, tmp_path / "straight"))
    stop = Flag()
    for event in train(config, tmp_path / "stopped", stop):
        if isinstance(event, StepDone) and event.step == 5:
            stop.set()
    list(resume(tmp_path / "stopped"))
    clocks = ("seconds", "tokens_per_s")
    told = [[{k: v for k, v in m.items() if k not in clocks} for m in read_metrics(tmp_path / name)] for name in ("straight", "stopped")]
    assert told[0] == told[1]
    for pointer in ("best", "last"):
        assert (tmp_path / "straight" / pointer).read_bytes() == (tmp_path / "stopped" / pointer).read_bytes()


def test_a_crash_between_the_checkpoint_and_its_pointers_is_made_up_for(tmp_path, text_file):
    config = small(text_file, changes=("evaluate_every=4",))
    list(train(config, tmp_path / "straight"))
    for event in train(config, tmp_path / "killed"):
        if isinstance(event, Saved) and event.step == 8:
            break
    for pointer in ("best", "last"):
        (tmp_path / "killed" / pointer).unlink()
    list(resume(tmp_path / "killed"))
    assert (tmp_path / "killed/best").read_bytes() == (tmp_path / "straight/best").read_bytes()


def test_any_character_may_stand_in_a_sample(tmp_path):
    log = Log(tmp_path)
    log.write(Sampled(1, "a\u2028b\x85c\r\nd"))
    log.close()
    Log(tmp_path, from_step=1).close()
    assert [m["text"] for m in read_metrics(tmp_path)] == ["a\u2028b\x85c\r\nd"]


def test_a_run_that_diverges_stops_with_words_and_keeps_no_nan(tmp_path, text_file):
    config = small(text_file, changes=("norm=none", "lr=1e30", "grad_clip=0", "save_every=1"))
    with pytest.raises(Diverged, match="training has diverged"):
        list(train(config, tmp_path / "run"))
    assert all(math.isfinite(m["loss"]) for m in read_metrics(tmp_path / "run") if m["event"] == "StepDone")


def test_tokens_that_have_changed_are_found_on_resume(tmp_path, text_file):
    stop = Flag()
    stop.set()
    list(train(small(text_file), tmp_path / "run", stop))
    (shard,) = (tmp_path / "run/data").glob("train-*.tok")
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match="its tokens have changed"):
        next(resume(tmp_path / "run"))


def test_a_prepared_folder_decides_how_text_is_prepared(tmp_path, text_file):
    prepare(small(text_file, changes=("tokenizer=byte", "val_fraction=0.2")).data, 321, tmp_path / "prepared")
    list(train(small(tmp_path / "prepared", changes=("steps=1",)), tmp_path / "run"))
    stored = run_folder.read_run(tmp_path / "run")[0].data
    assert (stored.tokenizer, stored.val_fraction) == ("byte", 0.2)
    with pytest.raises(ValueError, match="was prepared with tokenizer=byte, not char"):
        list(train(small(tmp_path / "prepared", changes=("tokenizer=char",)), tmp_path / "other"))
    with pytest.raises(ValueError, match="is prepared already and goes alone"):
        list(train(small(tmp_path / "prepared", text_file), tmp_path / "other"))


def test_a_compiler_that_fails_means_an_eager_run(tmp_path, text_file, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(torch, "compile", lambda model, **kwargs: fail)
    monkeypatch.setattr("andrea.machine.compiler", lambda: "c++")
    chosen = pick(train(small(text_file, changes=("compile=on", "steps=2")), tmp_path / "run"), Chosen)[0]
    assert {c.name: c.value for c in chosen.choices}["compile"] is False
    assert "compiling failed, running eagerly: AssertionError" in chosen.notes


def test_two_texts_with_one_seed_are_told_apart(tmp_path, text_file):
    other = Path(tmp_path / "other.txt")
    other.write_bytes(text_file.read_bytes() + b"one more line\n")
    hashes = set()
    for name, path in (("a", text_file), ("b", other)):
        list(train(small(path, changes=("steps=1",)), tmp_path / name))
        hashes.add(json.loads((tmp_path / name / "run.json").read_text(encoding="utf-8"))["provenance"]["data"])
    assert len(hashes) == 2


def test_activations_computed_again_are_the_same(tmp_path, text_file):
    """Dropout's masks too: they are drawn from the state that the generators had the first time."""
    trained = {}
    for recompute in ("on", "off"):
        config = small(text_file, changes=("steps=3", "dropout=0.2", "kernels=auto", f"recompute={recompute}"))
        list(train(config, tmp_path / recompute))
        assert run_folder.read_run(tmp_path / recompute)[1]["recompute"] == (recompute == "on")
        trained[recompute] = checkpoint.load(tmp_path / recompute, "last").model.state_dict()
    assert all(torch.equal(trained["on"][name], value) for name, value in trained["off"].items())


def test_a_container_with_too_little_memory_gets_a_smaller_micro_batch_or_a_refusal(tmp_path, text_file, monkeypatch):
    monkeypatch.setattr("andrea.machine.CGROUP", tmp_path)
    config = small(text_file, changes=("steps=2", "batch_tokens=8192", "tokenizer=byte"))
    limit = sum(plan.memory_needed(override(config, "vocab_size=257"), 64, "cpu", "float32", "cpu").values())
    (tmp_path / "memory.max").write_text(f"{limit}\n", encoding="ascii")
    chosen = pick(train(config, tmp_path / "fits"), Chosen)[0]
    assert any(note.startswith("memory holds 64 sequences at a time, not 128") for note in chosen.notes)
    assert run_folder.read_run(tmp_path / "fits")[1]["micro_batch"] == 64

    (tmp_path / "memory.max").write_text(f"{plan.PROGRAM}\n", encoding="ascii")
    events = train(config, tmp_path / "refused")
    with pytest.raises(plan.TooLittleMemory, match="and there is 400 MiB"):
        next(events)  # before the text is prepared
    assert not (tmp_path / "refused").exists()
    with pytest.raises(plan.TooLittleMemory, match="64 of 32 tokens"):
        next(resume(tmp_path / "fits"))


@pytest.mark.skipif(sys.platform != "linux", reason="the allowances were measured with glibc")
def test_the_estimate_of_memory_is_near_what_a_run_takes(tmp_path, text_file):
    """The whole process of a small run, as the system counts it; the estimate is for any machine and may be above by a third."""
    code = f"""
import sys
from conftest import small
from pathlib import Path
from andrea.training.start import train
changes = ("vocab_size=2000", "d_model=256", "n_head=4", "n_layer=4", "context=256", "batch_tokens=2048", "steps=3", "dtype=float32")
for event in train(small(Path({str(text_file)!r}), changes=changes), {str(tmp_path / "run")!r}): pass
status = Path("/proc/self/status")
if status.exists():  # getrusage would count the parent, whose memory the child has for a moment
    print(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
else:
    import resource
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
    config, resolved, _ = run_folder.read_run(tmp_path / "run")
    estimated = sum(plan.memory_needed(config, resolved["micro_batch"], "cpu", "float32", "cpu").values())
    print(f"measured {measured / 2**20:.0f} MiB, estimated {estimated / 2**20:.0f}")
    assert 0.9 * measured <= estimated <= 4 / 3 * measured
