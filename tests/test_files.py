"""Reading with care and writing without loss, one function at a time; test_hostile.py and test_full_disk.py have the program."""

import os
import subprocess
import sys

import pytest

from andrea import files


def test_an_object_comes_back(tmp_path):
    files.write_json(tmp_path / "x.json", {"a": [1, 2.5, None, "é"], "b": {"c": True}})
    assert files.read_json(tmp_path / "x.json") == {"a": [1, 2.5, None, "é"], "b": {"c": True}}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "cannot be read"),
        (b"[1]", r"holds \[1\]; wanted an object"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": 1e999}', "1e999 is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"a": ' + b"[" * 100_000, "cannot be read: maximum recursion"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "nested more than 32 deep"),
        (b'{"a": "\xff"}', "is not UTF-8 at byte 7"),
        (b'{"a": "' + b"x" * 993 + b'"}', "has 1,002 bytes; no such file has more than 1,001"),
    ],
)
def test_what_is_no_object_is_refused_in_words(tmp_path, content, why):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=why) as refused:
        files.read_json(tmp_path / "x.json", 1001 if len(content) == 1002 else files.MOST)
    assert "x.json" in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_and_a_device_are_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", files.Path(os.devnull), tmp_path):
        with pytest.raises(ValueError, match="is not a file"):
            files.read_json(path)


@pytest.mark.parametrize(
    ("value", "kind", "good"),
    [
        (3, int, True),
        (-1, int, False),
        (2**63, int, False),
        (True, int, False),
        (1.0, int, False),
        (3, float, True),
        (0.5, float, True),
        (True, float, False),
        (2**70, float, False),
        ("x", str, True),
        ([], dict, False),
        (None, dict, False),
        (True, bool, True),
        (1, bool, False),
    ],
)
def test_a_field_is_of_its_kind_or_refused(value, kind, good):
    if good:
        assert files.field({"n": value}, "n", kind, "x.json") == value
    else:
        with pytest.raises(ValueError, match=rf"x.json is damaged: n is .*; wanted {kind.__name__}"):
            files.field({"n": value}, "n", kind, "x.json")
    with pytest.raises(ValueError, match="m is not there"):
        files.field({"n": value}, "m", kind, "x.json")


def test_a_failed_replacement_leaves_the_old_text_and_nothing_else(tmp_path):
    (tmp_path / "x").write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        files.replace_text(tmp_path / "x", "\ud800")
    (tmp_path / "folder").mkdir()
    for name in ("folder", "gone/x"):
        with pytest.raises(OSError) as refused:
            files.replace_text(tmp_path / name, "new")
        assert refused.value.filename == str(tmp_path / name)  # not that of what is written first
    assert (tmp_path / "x").read_text(encoding="utf-8") == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "x"]


def test_an_error_of_writing_gets_the_files_name_and_one_with_a_name_keeps_it(tmp_path):
    with pytest.raises(OSError, match="mine"), files.named(tmp_path / "mine"):
        raise OSError(28, "No space left on device")
    with pytest.raises(OSError, match="theirs"), files.named(tmp_path / "mine"):
        raise OSError(28, "No space left on device", "theirs")


def test_a_lock_is_held_by_one_and_ends_with_its_process(tmp_path):
    path = tmp_path / "lock"
    path.write_text("words", encoding="utf-8")
    code = "import sys, pathlib, andrea.files as f; h = f.hold(pathlib.Path(sys.argv[1])); print(h is not None, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    assert files.hold(path) is None
    assert path.read_text(encoding="utf-8") == "words"
    other.kill()
    other.communicate()
    held = files.hold(path)
    assert held is not None
    held.close()
