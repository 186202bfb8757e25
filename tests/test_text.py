import io
import os
import sys
import sysconfig
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea.config import DataConfig
from andrea.data.formats import texts
from andrea.data.spool import UNIT, WHOLE, Spool, cut, is_large, whole_characters
from andrea.data.text import BLOCK, NotText, Tally, decode, find, text_blocks

SWEDISH = "Å, det är en ö i ån.\r\nÄlgen åt blåbär på ängen; räven såg på.\n"


def read(*paths: Path, **options) -> list[tuple[str, str]]:
    return list(texts(DataConfig(paths=tuple(map(str, paths)), **options)))


def spooled(folder: Path, *paths: Path, **options) -> Spool:
    folder = folder.parent.with_name(f"{folder.parent.name}-{folder.name}")  # not in what is read
    folder.mkdir(exist_ok=True)
    spool = Spool(folder, DataConfig(paths=tuple(map(str, paths)), **options))
    list(spool.fill())
    return spool


def contents(spool: Spool) -> dict[str, str]:
    return {spool.name(i): "".join(spool.blocks(i)) for i in range(len(spool.documents))}


def reasons(spool: Spool) -> dict[str, str]:
    return {entry["name"]: entry["reason"] for entry in spool.tally.skipped}


# --- which files --------------------------------------------------------------------------------------------------------------------


def test_documents_come_sorted_with_posix_names_and_hidden_files_are_named(tmp_path):
    for name in ("b.txt", "a/z.md", "a/b/c.txt", ".hidden", ".git/config", "a.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    assert read(tmp_path / "in") == [(name, name) for name in ("a.txt", "a/b/c.txt", "a/z.md", "b.txt")]
    assert reasons(spooled(tmp_path / "spool", tmp_path / "in")) == {".git": "hidden", ".hidden": "hidden"}


def test_files_folders_and_patterns_may_be_mixed(tmp_path, monkeypatch):
    for name in ("one.txt", "two.txt", "notes/x.md", "notes/deep/y.md", "odd[1].txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    assert [name for name, _ in read(Path("one.txt"), Path("notes"), Path("t*.txt"))] == ["one.txt", "deep/y.md", "x.md", "two.txt"]
    assert [name for name, _ in read(Path("notes/**/*.md"))] == ["y.md", "x.md"]
    assert [name for name, _ in read(Path("notes/**"))] == ["y.md", "x.md"]
    assert [name for name, _ in read(Path("odd[1].txt"))] == ["odd[1].txt"]  # a file of that very name is no pattern
    with pytest.raises(FileNotFoundError, match=r"no file matches '\*.docx'"):
        find(["*.docx"])
    with pytest.raises(ValueError, match="a path is empty"):
        find([""])


def test_a_missing_path_is_named_with_the_nearest_there_is(tmp_path):
    (tmp_path / "shakespeare.txt").write_text("x")
    with pytest.raises(FileNotFoundError, match=r"no file or folder 'nowhere/at/all'$"):
        find(["nowhere/at/all"])
    with pytest.raises(FileNotFoundError, match=r"did you mean '.*shakespeare.txt'"):
        find([str(tmp_path / "shakespear.txt")])


def test_a_folder_without_text_says_what_was_found(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match=r"no text in .*: no files; give text files"):
        spooled(tmp_path / "spool", tmp_path / "in")
    (tmp_path / "in" / "empty.txt").touch()
    with pytest.raises(ValueError, match=r"empty.txt was skipped: it is empty"):
        spooled(tmp_path / "spool", tmp_path / "in")
    (tmp_path / "in" / "blank.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"all 2 files were skipped, the first \(blank.txt\) because it holds only white space"):
        spooled(tmp_path / "spool", tmp_path / "in")


def test_the_built_in_corpus_is_the_standard_library_without_its_tests():
    names = [source.name for source in find([])]
    assert names == sorted(names) and {"ast.py", "json/decoder.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)
    folders = {part for name in names for part in name.split("/")[:-1]}
    assert not folders & {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    source = Path(sysconfig.get_path("stdlib"), "ast.py").read_bytes().decode()
    assert dict(texts(DataConfig()))["ast.py"] == source


@pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and file modes are not Windows'")
def test_what_is_no_readable_file_is_named(tmp_path):
    folder = tmp_path / "in"
    (folder / "run").mkdir(parents=True)
    (folder / "good.txt").write_text("good")
    (folder / "link.txt").symlink_to("nowhere")
    (folder / "run" / "run.json").write_text("{}")
    (folder / "run" / "tokenizer.json").write_text("{}")
    (folder / "novel").mkdir()
    (folder / "novel" / "unfinished.txt").write_text("a novel")
    (folder / "run" / "samples.txt").write_text("made by a model")
    os.mkfifo(folder / "pipe")
    (folder / "gone.txt").write_text("gone")
    (folder / "image.txt").write_bytes(b"\x89PNG\r\n")
    sources = find([str(folder)])
    (folder / "gone.txt").unlink()
    found = {}
    for source in sources:
        try:
            source.open().close()
        except (NotText, OSError) as error:
            found[source.name] = str(error)
    assert found.keys() == {"link.txt", "run", "pipe", "gone.txt"}
    assert found["link.txt"] == "a link to nothing" and found["pipe"] == "no regular file"
    assert "made from text" in found["run"] and "No such file" in found["gone.txt"]
    assert reasons(spooled(tmp_path / "spool", folder))["image.txt"] == "it is a picture"


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe that is named like a file")
def test_a_pipe_is_read_where_a_person_names_it(tmp_path):
    ours, theirs = os.pipe()
    os.write(theirs, b"through a pipe")
    os.close(theirs)
    assert [text for _, text in read(Path(f"/dev/fd/{ours}"))] == ["through a pipe"]
    os.close(ours)


# --- what the bytes say -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16"),
        ("utf-16-be", "utf-16"),
        ("utf-32", "utf-32"),
        ("cp1252", "cp1252"),
        ("latin-1", "cp1252"),  # the same bytes
    ],
)
def test_swedish_is_read_right_from_every_encoding(tmp_path, encoding, name, form):
    text = unicodedata.normalize(form, SWEDISH)
    if form == "NFD" and name == "cp1252":
        pytest.skip("one-byte encodings have no combining marks")
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    spool = spooled(tmp_path / "spool", tmp_path / "a.txt")
    assert contents(spool) == {"a.txt": text}
    assert spool.report()["encodings"] == {name: 1}
    assert spool.report()["normal_forms"] == {"composed" if form == "NFC" else "decomposed": 1}
    assert contents(spooled(tmp_path / "nfc", tmp_path / "a.txt", normalize="nfc")) == {"a.txt": SWEDISH}


def test_utf_16_without_a_mark_is_seen_in_other_scripts():
    for text in ("Все счастливые семьи похожи друг на друга,\n" * 9, "\n\n대기 모드에서 컴퓨터를 깨울 수 없습니다. 자동 절전\n" * 4, "ja"):
        for encoding in ("utf-16-le", "utf-16-be"):
            assert decode(text.encode(encoding), "auto", Tally()) == text


def test_marked_utf_16_of_either_order_and_mixed_normal_forms(tmp_path):
    both = SWEDISH + unicodedata.normalize("NFD", SWEDISH)
    (tmp_path / "a.txt").write_bytes(b"\xfe\xff" + both.encode("utf-16-be"))
    spool = spooled(tmp_path / "spool", tmp_path / "a.txt")
    assert contents(spool) == {"a.txt": both} and spool.report()["normal_forms"] == {"mixed": 1}


def test_cp1252_and_what_only_latin_1_has_are_told_apart():
    for data, text, name in (
        (b"\x93quoted\x94", "“quoted”", "cp1252"),
        (b"caf\xe9 \x81", "café \x81", "latin-1"),
        ("naïve".encode() + b" caf\xe9", "naïve café", "utf-8 + cp1252"),
        (b"plain", "plain", "utf-8"),
        ("åäö é\n".encode() * 3 + b"\xe5\xe4\xf6 \xe9\n" * 5, "åäö é\n" * 8, "utf-8 + cp1252"),
        ("Всё здесь\n".encode() + b"\xe5\n", "Всё здесь\nå\n", "utf-8 + cp1252"),
        (b"\x93CAF\xc9\x94 \xabLIBERT\xc9\xbb d\xe9j\xe0", "“CAFÉ” «LIBERTÉ» déjà", "cp1252"),
    ):
        tally = Tally()
        assert decode(data, "auto", tally) == text
        assert tally.encodings == {name: 1}


def test_one_stray_byte_does_not_spoil_a_utf_8_file():
    text = "åäö 🎉 日本\n" * 100_000
    data = text.encode()
    spoilt = data[: len(data) // 2 // 20 * 20] + b"\xe9\n" + data[len(data) // 2 // 20 * 20 :]
    read_back = decode(spoilt, "auto", Tally())
    assert read_back.count("é") == 1 and read_back.replace("é\n", "") == text


def test_a_text_of_no_western_encoding_is_refused_until_it_is_named():
    russian = "Все счастливые семьи похожи друг на друга\n" * 9
    with pytest.raises(NotText, match=r"its encoding is not recognised.*--encoding"):
        decode(russian.encode("koi8-r"), "auto", Tally())
    tally = Tally()
    assert decode(russian.encode("koi8-r"), "koi8-r", tally) == russian and tally.encodings == {"koi8-r": 1}
    assert decode(russian.encode(), "koi8-r", Tally()) == russian  # UTF-8 is still seen
    with pytest.raises(NotText, match="neither UTF-8 nor ascii"):
        decode(russian.encode("koi8-r"), "ascii", Tally())
    with pytest.raises(ValueError, match="encoding='koi8r2' is none that Python knows; did you mean 'koi8_r'"):
        DataConfig(encoding="koi8r2")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "picture"),
        (b"%PDF-1.7\n", "a PDF; make text of it first"),
        (b"PK\x03\x04....", "an archive"),
        (b"\x1f\x8b\x08..", "compressed, and not named .gz"),
        (b"abc\0def", "NUL"),
        (bytes(range(1, 32)) * 9, "control characters"),
        (b"\xff\xfeabc", "not whole utf-16-le"),
        ("\x01\x02\x03".encode("utf-16") * 9, "control characters"),
    ],
)
def test_what_is_no_text_is_refused_with_the_reason(data, reason):
    with pytest.raises(NotText, match=reason):
        decode(data, "auto", Tally())


def test_newlines_stay_exactly_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\rc\n\n")
    assert read(tmp_path / "a.txt") == [("a.txt", "a\r\nb\rc\n\n")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("line", ["", "\n", " "])
def test_a_character_across_a_block_border_is_read_whole(encoding, line):
    text = ("x" * (BLOCK - 1) + "é🎉日") + (line + "y" * (BLOCK - 2) + "e\u0301🎉") * 2
    blocks = list(text_blocks(io.BytesIO(text.encode(encoding)), "auto", Tally()))
    assert "".join(blocks) == text and len(blocks) > 2


# --- documents on the disk, and their pieces ----------------------------------------------------------------------------------------


def test_small_documents_are_units_and_large_ones_are_cut_at_line_breaks(tmp_path):
    assert is_large(UNIT + 1, 20 * UNIT) and not is_large(UNIT + 1, 21 * (UNIT + 1)) and not is_large(UNIT, UNIT)
    assert is_large(WHOLE + 1, 10**12) and not is_large(WHOLE, 10**12)
    text = "".join(f"line {i} of a long document\n" for i in range(9_001))
    (tmp_path / "long.txt").write_text(text, newline="")
    (tmp_path / "short.txt").write_text("short\n", newline="")
    spool = spooled(tmp_path / "spool", tmp_path / "long.txt", tmp_path / "short.txt")
    units = spool.units()
    *pieces, short = units.read(np.arange(len(units)))
    assert "".join(pieces) == text and len(pieces) == len(text) // UNIT + 1 and short == "short\n"
    assert all(piece.endswith("\n") and len(piece) <= UNIT for piece in pieces)
    assert units.rows["document"].tolist() == [0] * len(pieces) + [1]


@given(st.lists(st.text(alphabet="ab\n", max_size=30).map(lambda s: s * 5_003), max_size=4))
def test_cut_pieces_are_the_text_however_it_arrives(blocks):
    pieces = list(cut(blocks))
    assert "".join(pieces) == "".join(blocks)
    assert all(0 < len(piece) <= UNIT for piece in pieces)
    assert pieces == list(cut(["".join(blocks)]))


@given(st.text(), st.integers(0, 4))
def test_whole_characters_are_counted_to_the_byte(text, missing):
    data = text.encode()[: len(text.encode()) - missing]
    assert data[: whole_characters(data)].decode() == data.decode("utf-8", "ignore")


def test_a_source_that_breaks_is_taken_back_whole(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("first\n")
    (folder / "b.txt").write_bytes(b"good for a long while\n" * 100_000 + b"\0\0\0")
    (folder / "c.txt").write_text("last\n")
    spool = spooled(tmp_path / "spool", folder)
    assert contents(spool) == {"a.txt": "first\n", "c.txt": "last\n"}
    assert (spool.folder / "text.utf8").read_bytes() == b"first\nlast\n"
    assert spool.report()["files"] == 2 and spool.report()["encodings"] == {"utf-8": 2}
    assert reasons(spool).keys() == {"b.txt"}
