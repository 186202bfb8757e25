import json
import os
import pickle
import shutil

import pytest
import torch
from reference import tiny
from safetensors import SafetensorError

from andrea import checkpoint, files, run_folder
from andrea.config import RunConfig, TrainConfig
from andrea.data.tokenizer import byte_tokenizer
from andrea.model import Transformer

STATE = {"windows": 3, "tokens": 48, "best_loss": 1.5, "seconds": 0.5}


@pytest.fixture
def run(tmp_path):
    config = RunConfig(tiny(vocab_size=257), train=TrainConfig(batch_tokens=16))
    made = run_folder.create(tmp_path / "run")
    run_folder.write_run(made, config, {"steps": 9}, {"andrea": "test"})
    byte_tokenizer().save(made / "tokenizer.json")
    return made


def model_of(seed):
    torch.manual_seed(seed)
    return Transformer(tiny(vocab_size=257))


def test_what_is_saved_loads_bit_for_bit(run):
    model = model_of(1)
    checkpoint.save(run, 3, checkpoint.weights(model), {"x": torch.arange(3)}, STATE, best=True)
    loaded = checkpoint.load(run)
    assert loaded.step == 3
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), loaded.model.state_dict().values(), strict=True))
    assert loaded.config == RunConfig(tiny(vocab_size=257), train=TrainConfig(batch_tokens=16))
    assert checkpoint.read_state(run / "checkpoints/step-3")["windows"] == 3


@pytest.mark.skipif(os.name == "nt", reason="modes are not Windows")
def test_who_may_read_a_run_may_read_its_weights(run):
    folder = checkpoint.save(run, 3, checkpoint.weights(model_of(1)), {"x": torch.arange(3)}, STATE, best=True)
    assert {path.stat().st_mode for path in folder.iterdir()} == {(run / "run.json").stat().st_mode}


@pytest.mark.parametrize(
    ("why", "wanted"),
    [("I/O error: No space left on device (os error 28)", r"\[Errno 28\].*x\.safetensors"), ("no name", "cannot be written: no n")],
)
def test_weights_that_cannot_be_written_are_an_error_of_the_file(run, monkeypatch, why, wanted):
    def fail(tensors, path, metadata):
        raise SafetensorError(why)

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match=wanted):
        checkpoint.write_tensors(run / "x.safetensors", {})


def test_a_tied_matrix_is_written_once_and_an_untied_one_too():
    assert "unembed.weight" not in checkpoint.weights(Transformer(tiny()))
    assert "unembed.weight" in checkpoint.weights(Transformer(tiny(tied=False)))


@pytest.mark.parametrize(
    ("keep", "every", "kept"), [(1, None, [2, 5, 7]), (2, None, [2, 5, 6, 7]), (1, 3, [2, 3, 5, 6, 7]), (9, None, [1, 2, 3, 4, 5, 6, 7])]
)
def test_the_best_the_sound_the_newest_and_every_nth_are_kept(run, keep, every, kept):
    for step in range(1, 8):
        checkpoint.save(run, step, checkpoint.weights(model_of(step)), {}, STATE, step == 2, step <= 5, keep, every)
    assert sorted(int(p.name.removeprefix("step-")) for p in (run / "checkpoints").iterdir()) == kept
    assert checkpoint.load(run).step == 2
    assert checkpoint.load(run, at="last").step == 7
    assert checkpoint.newest_sound(run) == run / "checkpoints/step-5"


def test_an_interrupted_save_leaves_the_earlier_checkpoint_whole(run, monkeypatch):
    checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    original = checkpoint.write_json

    def crash(path, value):
        if path.name == "manifest.json":
            raise OSError("no space left on device")
        original(path, value)

    monkeypatch.setattr(checkpoint, "write_json", crash)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(run, 2, checkpoint.weights(model_of(2)), {}, STATE, best=True)
    monkeypatch.undo()
    folder, skipped = checkpoint.newest_whole(run)
    assert (folder.name, skipped) == ("step-1", [])
    assert checkpoint.load(run, at="last").step == 1
    checkpoint.save(run, 2, checkpoint.weights(model_of(2)), {}, STATE, best=True)  # and what was left does not stand in the way
    assert checkpoint.load(run).step == 2


@pytest.mark.parametrize("name", checkpoint.PAYLOAD)
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_is_skipped_by_name(run, name, damage):
    checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {"x": torch.ones(5)}, STATE, best=True)
    checkpoint.save(run, 2, checkpoint.weights(model_of(2)), {"x": torch.ones(5)}, STATE, best=False)
    path = run / "checkpoints/step-2" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    {
        "truncate": lambda: path.write_bytes(content[:-1]),
        "flip": lambda: path.write_bytes(content),
        "remove": path.unlink,
    }[damage]()
    folder, skipped = checkpoint.newest_whole(run)
    assert folder.name == "step-1"
    assert len(skipped) == 1
    assert "step-2" in skipped[0]


def test_a_damaged_checkpoint_is_written_anew(run):
    checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    folder = checkpoint.save(run, 2, checkpoint.weights(model_of(2)), {}, STATE, best=False)
    (folder / "manifest.json").unlink()
    checkpoint.save(run, 2, checkpoint.weights(model_of(3)), {}, STATE, best=True)
    checkpoint.verify(folder)
    assert torch.equal(checkpoint.load(run).model.token_embed.weight, model_of(3).token_embed.weight)


def test_the_newest_is_the_highest_number_and_not_the_last_name(run):
    for step in (9, 10):
        checkpoint.save(run, step, checkpoint.weights(model_of(step)), {}, STATE, best=step == 9)
    assert checkpoint.newest_whole(run)[0].name == "step-10"


@pytest.mark.parametrize("content", [None, "", "step-7"])
def test_a_pointer_to_nothing_falls_back_to_the_newest_whole_checkpoint(run, content):
    checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    (run / "best").unlink()
    if content is not None:
        (run / "best").write_text(content, encoding="utf-8")
    assert checkpoint.load(run).step == 1


def test_a_run_without_a_whole_checkpoint_says_so(run):
    with pytest.raises(ValueError, match="holds no whole checkpoint; it stopped before the first save"):
        checkpoint.load(run)


def test_a_run_is_never_overwritten(run):
    with pytest.raises(FileExistsError, match="never overwritten"):
        run_folder.create(run)


def test_names_are_counted_up(tmp_path):
    (tmp_path / "demo-1").mkdir()
    assert run_folder.next_name(tmp_path, "demo") == tmp_path / "demo-2"


def left(folder):
    """What a killed process leaves: the mark, and some of what comes before run.json."""
    with run_folder.unfinished(folder) as made:
        (made / "data").mkdir()
        (made / "data" / "train-00000.tok").write_bytes(b"x")
        (made / ".data.1a2b.part").mkdir()
        (made / "tokenizer.json").write_text("{", encoding="utf-8")
        shutil.copytree(made, folder.with_name("copy"))
    shutil.rmtree(folder)
    return folder.with_name("copy").rename(folder)


def test_a_folder_that_was_left_unfinished_is_taken_and_emptied(tmp_path):
    run = left(tmp_path / "demo-1")
    assert "is being made in this folder" in (run / "unfinished.txt").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"has no run\.json; its making was killed, and giving the same command again"):
        run_folder.read_run(run)
    assert run_folder.next_name(tmp_path, "demo") == run
    with run_folder.unfinished(run):
        assert [p.name for p in run.iterdir()] == ["unfinished.txt"]
        run_folder.write_run(run, RunConfig(tiny(), train=TrainConfig(batch_tokens=16)), {"steps": 1}, {})
    assert [p.name for p in run.iterdir()] == ["run.json"]
    with pytest.raises(FileExistsError, match="never overwritten"):
        run_folder.create(run)


def test_create_makes_a_folder_that_was_left_new(tmp_path):
    assert list(run_folder.create(left(tmp_path / "demo-1")).iterdir()) == []


@pytest.mark.parametrize("name", ["run.json", "checkpoints", "notes.txt", "last", ".git", "metrics.jsonl"])
def test_a_folder_with_anything_else_in_it_is_never_emptied(tmp_path, name):
    run = left(tmp_path / "demo-1")
    (run / name).write_text("mine", encoding="utf-8")
    assert run_folder.next_name(tmp_path, "demo") == tmp_path / "demo-2"
    with pytest.raises(FileExistsError, match="never overwritten"):
        run_folder.create(run)
    assert (run / name).read_text(encoding="utf-8") == "mine"
    assert (run / "data" / "train-00000.tok").exists()


def test_a_link_out_of_a_folder_is_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "book.txt").write_text("mine", encoding="utf-8")
    run = left(tmp_path / "demo-1")
    shutil.rmtree(run / "data")
    try:
        (run / "data").symlink_to(tmp_path / "mine", target_is_directory=True)
    except OSError:
        pytest.skip("links are not for everybody here")
    run_folder.create(run)
    assert (tmp_path / "mine" / "book.txt").exists()
    assert list(run.iterdir()) == []


def test_a_folder_that_is_being_made_is_left_to_its_maker(tmp_path):
    with run_folder.unfinished(tmp_path / "demo-1") as run:
        (run / "data").mkdir()
        assert run_folder.next_name(tmp_path, "demo") == tmp_path / "demo-2"
        with pytest.raises(FileExistsError, match="is being made by another process; wait for it"):
            run_folder.create(run)
        assert (run / "data").exists()


def test_a_folder_that_another_finishes_at_this_moment_is_left_alone(tmp_path, monkeypatch):
    run = left(tmp_path / "demo-1")

    def slow(path):
        (run / "run.json").write_text("{}", encoding="utf-8")  # between the look and the lock
        return files.hold(path)

    monkeypatch.setattr(run_folder, "hold", slow)
    with pytest.raises(FileExistsError, match="never overwritten"):
        run_folder.create(run)
    assert (run / "data").exists()


def test_an_error_before_run_json_leaves_no_folder_and_one_after_it_keeps_all(tmp_path):
    with pytest.raises(KeyError), run_folder.unfinished(tmp_path / "a") as run:
        (run / "data").mkdir()
        raise KeyError
    assert not run.exists()
    with pytest.raises(KeyError), run_folder.unfinished(tmp_path / "b") as run:
        (run / "run.json").touch()
        raise KeyError
    assert [p.name for p in run.iterdir()] == ["run.json"]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run folder: it has no run\.json"):
        checkpoint.load(tmp_path)


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(run, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    run.rename(tmp_path / "runs" / "shakespeare-1")
    monkeypatch.chdir(tmp_path)
    assert run_folder.find_run("shakespeare-1").name == "shakespeare-1"
    with pytest.raises(ValueError, match="did you mean runs/shakespeare-1"):
        run_folder.find_run("shakespear-1")


def test_a_newer_format_and_a_torn_file_are_refused(run):
    text = (run / "run.json").read_text(encoding="utf-8")
    (run / "run.json").write_text(text.replace('"format_version": 1', '"format_version": 2', 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"format_version 2; this program reads up to 1"):
        checkpoint.load(run)
    (run / "run.json").write_text(text[:40], encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoint.load(run)


def test_a_pickle_in_place_of_the_weights_is_refused_unopened(run):
    class Hostile:
        def __reduce__(self):
            return pytest.fail, ("the pickle was opened",)

    checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    (run / "checkpoints/step-1/model.safetensors").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        checkpoint.load(run)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_a_file_with_the_names_of_a_wrapper_is_refused_and_no_random_weights_come_of_it(run, prefix):
    folder = checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    named = {prefix + name: tensor for name, tensor in checkpoint.load_tensors(folder / "model.safetensors").items()}
    checkpoint.write_tensors(folder / "model.safetensors", named)
    with pytest.raises(ValueError, match=r"does not fit run\.json"):
        checkpoint.load(run)


def test_weights_of_another_model_are_refused():
    other = checkpoint.weights(Transformer(tiny(n_layer=1)))
    with pytest.raises(ValueError, match=r"missing \['blocks.1"):
        checkpoint.set_weights(Transformer(tiny()), other)
    with pytest.raises(ValueError, match=r"\(57, 32\) in the file and \(61, 32\) in the model"):
        checkpoint.set_weights(Transformer(tiny()), checkpoint.weights(Transformer(tiny(vocab_size=57))))


def test_at_is_best_or_last(run):
    checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    with pytest.raises(ValueError, match="neither 'best' nor 'last'"):
        checkpoint.load(run, at="first")


def test_every_file_names_its_format(run):
    folder = checkpoint.save(run, 1, checkpoint.weights(model_of(1)), {}, STATE, best=True)
    for path in (run / "run.json", folder / "state.json", folder / "manifest.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["format_version"] == 1
