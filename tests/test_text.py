import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea.data.text import UNIT, Corpus, Document, cut, units


def corpus(folder: Path) -> Corpus:
    return Corpus([str(folder)])


def test_documents_come_sorted_with_posix_names_and_without_hidden_files(tmp_path):
    for name in ("b.txt", "a/z.md", "a/b/c.txt", ".hidden", ".git/config", "a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = list(corpus(tmp_path))
    assert found == [Document(name, name) for name in ("a.txt", "a/b/c.txt", "a/z.md", "b.txt")]


def test_a_corpus_can_be_read_twice(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    c = Corpus([str(tmp_path / "a.txt")])
    assert list(c) == list(c) == [Document("a.txt", "one")]


def test_newlines_stay_exactly_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\rc\n\n")
    assert next(iter(corpus(tmp_path))).text == "a\r\nb\rc\n\n"


def test_encodings_are_settled_per_file_and_counted(tmp_path):
    (tmp_path / "plain.txt").write_bytes("naïve".encode())
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbfmark")
    (tmp_path / "windows.txt").write_bytes(b"\x93quoted\x94")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 \x81")
    c = corpus(tmp_path)
    assert {d.name: d.text for d in c} == {
        "plain.txt": "naïve",
        "mark.txt": "mark",
        "windows.txt": "“quoted”",
        "latin.txt": "café \x81",
    }
    assert c.report["encodings"] == {"utf-8": 2, "cp1252": 1, "latin-1": 1}
    assert c.report["files"] == 4
    assert c.bytes == c.report["bytes"] == sum(len(d.text.encode()) for d in c)


def test_a_character_across_a_block_border_is_read_whole(tmp_path):
    text = "x" * (2**20 - 1) + "é🎉\n" * 7
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert next(iter(corpus(tmp_path))).text == text


def test_files_that_are_not_text_are_skipped_and_named(tmp_path):
    (tmp_path / "binary.bin").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "wide.txt").write_text("wide", encoding="utf-16")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.txt").write_bytes(b" \r\n\t")
    (tmp_path / "good.txt").write_text("good")
    c = corpus(tmp_path)
    assert [d.name for d in c] == ["good.txt"]
    reasons = {entry["name"]: entry["reason"] for entry in c.report["skipped"]}
    assert reasons.keys() == {"binary.bin", "wide.txt", "empty.txt", "blank.txt"}
    assert "NUL" in reasons["binary.bin"] and "NUL" in reasons["wide.txt"]
    assert "empty" in reasons["empty.txt"] and "white space" in reasons["blank.txt"]


def test_a_missing_path_is_named():
    with pytest.raises(FileNotFoundError, match="no file or folder 'nowhere/at/all'"):
        Corpus(["nowhere/at/all"])


def test_a_folder_without_text_says_what_was_found(tmp_path):
    with pytest.raises(ValueError, match="no files"):
        list(corpus(tmp_path))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match=r"all 1 files were skipped, the first \(empty.txt\) because it is empty"):
        list(corpus(tmp_path))


def test_the_built_in_corpus_is_the_standard_library_without_its_tests():
    c = Corpus([])
    names = [name for name, _ in c.found]
    assert names == sorted(names) and {"ast.py", "json/decoder.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)
    folders = {part for name in names for part in name.split("/")[:-1]}
    assert not folders & {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    source = Path(sysconfig.get_path("stdlib"), "ast.py").read_bytes().decode()
    assert next(d for d in c if d.name == "ast.py").text == source


def test_small_documents_are_units_and_large_ones_are_cut_at_line_breaks():
    text = "".join(f"line {i} of a long document\n" for i in range(9_001))
    whole = Document("a", text)
    assert list(units(whole, corpus_bytes=len(text) * 20)) == [text]
    pieces = list(units(whole, corpus_bytes=len(text) * 20 - 1))
    assert "".join(pieces) == text and len(pieces) == len(text) // UNIT + 1
    assert all(piece.endswith("\n") and len(piece) <= UNIT for piece in pieces)
    small = Document("b", "x" * UNIT)
    assert list(units(small, corpus_bytes=UNIT)) == [small.text]


@given(st.lists(st.text(alphabet="ab\n", max_size=30).map(lambda s: s * 5_003), max_size=4))
def test_cut_pieces_are_the_text_however_it_arrives(blocks):
    pieces = list(cut(blocks))
    assert "".join(pieces) == "".join(blocks)
    assert all(0 < len(piece) <= UNIT for piece in pieces)
    assert pieces == list(cut(["".join(blocks)]))


def test_the_streamed_units_are_those_of_the_documents(tmp_path):
    (tmp_path / "large.txt").write_text("".join(f"{i}\r\n" for i in range(400_000)), newline="")
    (tmp_path / "line.txt").write_text("é" * 200_001, encoding="utf-8")
    (tmp_path / "small.txt").write_text("small\n")
    c = corpus(tmp_path)
    streamed = list(c.units())
    assert streamed == [unit for doc in c for unit in units(doc, c.bytes)]
    assert len(streamed) > 40


def test_a_file_that_cannot_be_opened_is_skipped_and_named(tmp_path):
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / "gone.txt").write_text("gone")
    c = corpus(tmp_path)
    (tmp_path / "gone.txt").unlink()
    assert [d.name for d in c] == ["good.txt"]
    assert [entry["name"] for entry in c.report["skipped"]] == ["gone.txt"]
