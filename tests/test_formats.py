import bz2
import gzip
import io
import json
import lzma
import mailbox
import os
import subprocess
import sys
import tarfile
import zipfile
from email.message import EmailMessage
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
import tokenizers
import zstandard
from test_text import contents, read, reasons, spooled

from andrea.config import DataConfig
from andrea.data.formats import packed, pages
from andrea.data.formats.mail import own_words
from andrea.data.formats.pages import visible
from andrea.data.text import read_whole
from andrea.data.tokenizer import train_bpe

TEXT = "Å, det är en ö.\nEn rad till.\n"
ROWS = ["first row å", "second\nrow ö", "third"]


def only(*args, **options) -> list[str]:
    return [text for _, text in read(*args, **options)]


# --- rows ---------------------------------------------------------------------------------------------------------------------------


def test_json_lines_give_a_document_a_row_and_count_the_rest(tmp_path):
    rows = [json.dumps({"text": t, "other": 1}) for t in ROWS]
    bad = [
        '{"text": ""}',
        '{"other": 1}',
        '{"text": " \\n"}',
        '{"text": 5}',
        "[1]",
        '{"text": ',
        "[" * 9_000,
        "",
        '{"text": "\\ud800 half"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, *bad]), encoding="utf-8")
    spool = spooled(tmp_path / "spool", tmp_path / "a.jsonl")
    assert contents(spool) == {"a.jsonl#1": ROWS[0], "a.jsonl#2": ROWS[1], "a.jsonl#3": ROWS[2], "a.jsonl#12": "\ufffd half"}
    assert spool.report()["rows_skipped"] == {"empty": 1, "only white space": 1, "no text in 'text'": 3, "no JSON": 2}
    assert spool.report()["surrogates"] == 1 and spool.report()["files"] == 1


def test_rows_without_text_leave_the_others_as_they_were(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in ROWS))
    (tmp_path / "b.jsonl").write_text(
        "\n".join(json.dumps(r) for r in ({"text": ""}, {"text": ROWS[0]}, {}, *({"text": t} for t in ROWS[1:]), {"text": "\t"}))
    )
    assert only(tmp_path / "a.jsonl") == ROWS
    assert list(contents(spooled(tmp_path / "spool", tmp_path / "b.jsonl")).values()) == ROWS


def test_another_field_is_named_and_a_wrong_one_told(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x y", "title": "t"}\n')
    (tmp_path / "a.csv").write_text('title,body\nt,"x y"\n')
    pyarrow.parquet.write_table(pyarrow.table({"title": ["t"], "body": ["x y"], "n": [1]}), tmp_path / "a.parquet")
    assert only(tmp_path, field="body") == ["x y"] * 3
    with pytest.raises(ValueError, match="no text in"):
        spooled(tmp_path / "spool", tmp_path)
    (tmp_path / "good.txt").write_text("good")
    found = reasons(spooled(tmp_path / "spool", tmp_path))
    assert found["a.jsonl"] == "no line has text in 'text'; the first has 'body', 'title': choose one with --field"
    assert found["a.csv"] == "it has no column 'text'; it has 'title', 'body': choose one with --field"
    assert found["a.parquet"] == "it has no column 'text' of text; it has 'title', 'body': choose one with --field"


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_separated_values_are_read_by_their_header(tmp_path, name, delimiter):
    cells = [f'"{t}"' for t in ROWS]
    more = delimiter.join(("5", "one", "too many"))
    lines = [delimiter.join(("id", "text")), *(delimiter.join((str(i), t)) for i, t in enumerate(cells)), "4", more]
    (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="cp1252", newline="")
    spool = spooled(tmp_path / "spool", tmp_path / name)
    assert list(contents(spool).values()) == ROWS
    assert spool.report()["rows_skipped"] == {"no text in 'text'": 1, "more cells than the header has": 1}
    assert spool.report()["encodings"] == {"cp1252": 1}


def test_a_single_column_needs_no_name(tmp_path):
    (tmp_path / "a.csv").write_text('line\none\ntwo, with a comma\n"three"\n')
    assert only(tmp_path / "a.csv") == ["one", "two, with a comma", "three"]
    (tmp_path / "b.csv").write_text("")
    assert only(tmp_path / "b.csv") == []


@pytest.mark.parametrize("kind", ["parquet", "arrow file", "arrow stream", "feather"])
def test_column_files_are_read_in_batches(tmp_path, kind):
    many = [f"row {i} å" for i in range(2_345)] + [None]
    texts = pyarrow.array(many).dictionary_encode() if kind == "feather" else pyarrow.array(many, pyarrow.large_string())
    table = pyarrow.table({"n": range(len(many)), "text": texts})
    path = tmp_path / f"a.{kind.split()[0]}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=100)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path)
    else:
        make = pyarrow.ipc.new_file if kind == "arrow file" else pyarrow.ipc.new_stream
        with make(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    spool = spooled(tmp_path / "spool", path)
    assert list(contents(spool).values()) == many[:-1]
    assert spool.report()["rows_skipped"] == {"no text in 'text'": 1}


def test_a_data_set_is_streamed_through_its_library(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ROWS))
    assert only(f"hf://datasets/{tmp_path / 'set'}?split=train") == ROWS
    with pytest.raises(ValueError, match="wanted hf://datasets/NAME"):
        spooled(tmp_path / "spool", "hf://models/x")


# --- pages --------------------------------------------------------------------------------------------------------------------------

PAGE = """<!DOCTYPE html><html><head><meta charset="{charset}"><title>not shown</title><style>p</style>
<script>var no = "<p>no</p>"</script></head>
<body><h1>Rubrik</h1><p>En <b>fe</b>t&nbsp;rad,<br>näst&aring; rad</p><!-- no --><ul><li>ett</li><li>två</li></ul>
<div hidden>dolt <div>mer</div></div><div style="display: none">dolt</div><table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>
<pre>kod
  indragen</pre><p>slut &lt;br&gt;</p><noscript>no</noscript><svg><text>no</text></svg></body></html>"""
SHOWN = "Rubrik\n\nEn fet rad,\nnästå rad\n\nett\ntvå\n\na\tb\nc\n\nkod\n  indragen\n\nslut <br>"


def test_a_page_gives_what_a_browser_shows():
    assert visible(PAGE) == SHOWN
    assert visible("a<br/>b<p>c<p>d") == "a\nb\n\nc\n\nd" and visible("") == "" and visible("<p hidden>seen<p>too") == "seen\n\ntoo"


def test_a_page_comes_out_the_same_in_pieces_and_an_endless_tag_is_refused(tmp_path, monkeypatch):
    image = f'<img src="data:image/png;base64,{"A" * 300_000}">'
    assert visible(PAGE.replace("<ul>", f"{image}<ul>")) == SHOWN
    for step in (1, 7, 64):
        monkeypatch.setattr(pages, "STEP", step)
        assert visible(PAGE + "<p>end</p>") == f"{SHOWN}\n\nend"
    monkeypatch.undo()
    for opening in ("<!--", "<a href='", "</p ", "<?", "<!DOCTYPE"):
        (tmp_path / "a.html").write_text(f"<p>good</p>{opening * 400_000}")
        with pytest.raises(ValueError, match="a tag or a comment has no end"):
            spooled(tmp_path / "spool", tmp_path / "a.html")


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "windows-1252", "macroman", "utf-16"])
def test_a_page_is_read_in_the_encoding_it_declares(tmp_path, charset):
    (tmp_path / "a.html").write_bytes(PAGE.format(charset=charset).encode(charset))
    assert only(tmp_path / "a.html") == [SHOWN]


def test_a_declared_encoding_is_taken_at_its_word_where_it_can_be(tmp_path):
    for charset, text in (("iso-8859-15", "5 €"), ("koi8-r", "Всё"), ("shift_jis", "日本"), ("gb2312", "中文")):
        (tmp_path / "a.html").write_bytes(f'<meta charset="{charset}"><p>{text}'.encode(charset))
        spool = spooled(tmp_path / "spool", tmp_path / "a.html")
        assert list(contents(spool).values()) == [text] and spool.report()["encodings"] == {charset: 1}
    (tmp_path / "a.html").write_bytes(b"<meta charset=gb2312><p>\xff\xff")
    with pytest.raises(ValueError, match="it is not the gb2312 that it says it is"):
        spooled(tmp_path / "spool", tmp_path / "a.html")
    for wrong in ("utf-16", "no-such", "koi8-r", "undefined", "shift_jis"):
        (tmp_path / "a.html").write_bytes(f'<meta charset="{wrong}"><p>å ä ö'.encode("utf-16" if wrong == "koi8-r" else "utf-8"))
        assert only(tmp_path / "a.html") == ["å ä ö"]


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path):
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="b" href="text/b%20c.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/><item id="i" href="i.png" media-type="image/png"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="i"/></spine></package>'
    )
    container = '<c xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfile full-path="OEBPS/x.opf"/></c>'
    with zipfile.ZipFile(tmp_path / "a.epub", "w") as book:
        book.writestr("META-INF/container.xml", container)
        book.writestr("OEBPS/x.opf", package)
        book.writestr("OEBPS/a.xhtml", "<html><body><p>Första å</p></body></html>")
        book.writestr("OEBPS/text/b c.xhtml", "<html><body><p>Andra ö</p></body></html>")
    assert only(tmp_path / "a.epub") == ["Första å\n\nAndra ö\n\n"]
    with zipfile.ZipFile(tmp_path / "b.epub", "w") as book:
        book.writestr("META-INF/container.xml", container)
        book.writestr("OEBPS/x.opf", package.replace("a.xhtml", "../../../../etc/passwd"))
    with pytest.raises(ValueError, match=r"it is damaged: it holds no '../../../etc/passwd'"):
        spooled(tmp_path / "spool", tmp_path / "b.epub")


def test_a_word_document_gives_paragraphs_cells_and_notes(tmp_path):
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="urn:mc"'
    body = (
        "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>Första </w:t></w:r><w:r><w:t>å</w:t><w:tab/><w:t>x</w:t><w:br/></w:r>"
        "<w:del><w:r><w:delText>no</w:delText></w:r></w:del></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<mc:AlternateContent><mc:Choice><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Choice>"
        "<mc:Fallback><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent>"
    )
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as file:
        file.writestr("word/document.xml", f"<w:document {space}><w:body>{body}</w:body></w:document>")
        file.writestr(
            "word/footnotes.xml", f"<w:footnotes {space}><w:footnote><w:p><w:r><w:t>note</w:t></w:r></w:p></w:footnote></w:footnotes>"
        )
    assert only(tmp_path / "a.docx") == ["Första å\tx\n\n\ncell\nbox\n\nnote\n\n"]


def test_xml_that_defines_entities_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as file:
        file.writestr("word/document.xml", '<!DOCTYPE d [<!ENTITY a "aaaa">]><d>&a;</d>')
    with pytest.raises(ValueError, match="its XML defines entities"):
        spooled(tmp_path / "spool", tmp_path / "a.docx")


# --- mail ---------------------------------------------------------------------------------------------------------------------------

REPLY = """Hej Åsa,

ja, det går bra.

Den tis 3 mars 2026 kl 09:12 skrev Åsa Öberg <asa@example.org>:

> Kan vi ses på onsdag?
> > Jag har inte tid förrän då.
>
> Åsa

Vi ses!
On Tue, 3 Mar 2026 at 10:00, Somebody With A Long Name
<somebody@example.org> wrote:
> quoted
-- \nÖrjan
Tel. 12 34
"""
OWN = "Hej Åsa,\n\nja, det går bra.\n\n\nVi ses!\n"


def test_a_mail_is_read_without_quotations_and_signature():
    assert own_words(REPLY) == OWN
    assert own_words("Ja.\n-----Original Message-----\nFrom: x\nNej.\n") == "Ja.\n"
    assert own_words("5 > 3\nHe wrote:\nno quotation\n") == "5 > 3\nHe wrote:\nno quotation\n"


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "iso-8859-15"])
def test_mails_and_mailboxes_give_their_plain_part(tmp_path, charset):
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "Möte", "a@example.org"
    mail.set_content(REPLY, charset=charset)
    mail.add_alternative("<p>html</p>", subtype="html")
    mail.add_attachment("attached", filename="a.txt")
    (tmp_path / "a.eml").write_bytes(mail.as_bytes())
    page = EmailMessage()
    page.set_content("<p>Bara <i>html</i> å</p>", subtype="html", charset=charset)
    box = mailbox.mbox(tmp_path / "b.mbox")
    box.add(mail)
    box.add(page)
    box.add(b"Subject: x\n\n>From the start\nFrom inside\n")
    box.close()
    spool = spooled(tmp_path / "spool", tmp_path)
    assert {n: t.replace("\r\n", "\n").rstrip("\n") for n, t in contents(spool).items()} == {
        "a.eml": OWN.rstrip(),
        "b.mbox#1": OWN.rstrip(),
        "b.mbox#2": "Bara html å",
        "b.mbox#3": "From the start\nFrom inside",
    }


def test_a_mail_with_an_endless_header_is_passed_over(tmp_path):
    (tmp_path / "a.eml").write_text("Content-Type: text/plain" + "; a=b" * 400_000 + "\n\nhi")
    (tmp_path / "b.eml").write_text("Content-Type: text/plain; charset=punycode\n\n" + "hi-b9" * 100_000)
    assert only(tmp_path)[1:] == ["hi-b9" * 100_000]


def test_each_part_of_a_mail_ends_at_its_own_signature_and_an_empty_one_gives_way(tmp_path):
    mail = EmailMessage()
    mail.set_content("first part\n-- \nme\n")
    mail.make_mixed()
    mail.add_attachment("second part\n", disposition="inline")
    (tmp_path / "a.eml").write_bytes(mail.as_bytes())
    page = EmailMessage()
    page.set_content("\n")
    page.add_alternative("<p>page <![CDATA[text]]></p>", subtype="html")
    (tmp_path / "b.eml").write_bytes(page.as_bytes())
    assert [text.split("\n") for text in only(tmp_path)] == [["first part", "", "second part", ""], ["page text"]]


def test_what_is_no_mailbox_is_refused(tmp_path):
    (tmp_path / "a.mbox").write_text("no mailbox\n")
    with pytest.raises(ValueError, match="it is no mailbox"):
        spooled(tmp_path / "spool", tmp_path / "a.mbox")


# --- containers ---------------------------------------------------------------------------------------------------------------------

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_are_read_whatever_is_in_them(tmp_path, suffix):
    pack = PACK[suffix]
    (tmp_path / f"a.txt{suffix.upper()}").write_bytes(pack(TEXT.encode("cp1252")))
    (tmp_path / f"b.jsonl{suffix}").write_bytes(
        pack(json.dumps({"text": TEXT}).encode()) + pack(b"\n" + json.dumps({"text": "2"}).encode())
    )
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": [TEXT]}), sink)
    (tmp_path / f"c.parquet{suffix}").write_bytes(pack(sink.getvalue()))
    assert only(tmp_path) == [TEXT, TEXT, "2", TEXT]
    (tmp_path / f"a.txt{suffix.upper()}").write_bytes(pack(os.urandom(2_000_000).hex().encode())[:-9])
    found = reasons(spooled(tmp_path / "spool", tmp_path))
    assert found.keys() == {f"a.txt{suffix.upper()}"} and "it is damaged" in found[f"a.txt{suffix.upper()}"]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tgz", "tar.zst"])
def test_archives_are_read_file_by_file(tmp_path, kind):
    files = {
        "in/a.txt": TEXT.encode("utf-16"),
        "b.jsonl": b'{"text": "row"}',
        "c.txt.gz": gzip.compress(b"packed"),
        "d.png": b"\x89PNG",
        "e.zip": b"PK\3\4",
        "12:30.txt": b"noon",
    }
    escaping = {"../../evil.txt": b"evil", "/abs.txt": b"evil", "C:/x.txt": b"evil"}
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {**files, **escaping}.items():
                archive.writestr(name, data)
    else:
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as archive:
            for name, data in {**files, **escaping}.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        packing = PACK.get(f".{kind.split('.')[-1]}", PACK[".gz"] if kind == "tgz" else bytes)
        path.write_bytes(packing(sink.getvalue()))
    before = sorted(tmp_path.rglob("*"))
    spool = spooled(tmp_path / "spool", path)
    assert contents(spool) == {
        f"a.{kind}/in/a.txt": TEXT,
        f"a.{kind}/b.jsonl#1": "row",
        f"a.{kind}/c.txt.gz": "packed",
        f"a.{kind}/12:30.txt": "noon",
    }
    found = {name.removeprefix(f"a.{kind}/"): reason for name, reason in reasons(spool).items()}
    assert found == {
        "d.png": "it is a picture",
        "e.zip": "it is an archive, or an office document of a kind that is not read",
        **dict.fromkeys(escaping, "its name leads out of the archive"),
    }
    assert [p for p in sorted(tmp_path.rglob("*")) if "spool" not in p.parts] == before


def bomb(kind: str, size: int) -> bytes:
    if kind in PACK:
        return PACK[kind](bytes(size).replace(b"\0", b"a"))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a.txt", "b.txt") if kind == ".zip" else ("word/document.xml",):
            archive.writestr(name, b"a" * size)
    return sink.getvalue()


@pytest.mark.parametrize("kind", [*PACK, ".zip", ".docx"])
def test_bombs_are_refused_before_they_fill_anything(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(packed, "ROOM", 1 << 20)
    (tmp_path / f"a{kind if kind in ('.zip', '.docx') else '.txt' + kind}").write_bytes(bomb(kind, 30_000_000))
    (tmp_path / "b.txt").write_text("good")
    spool = spooled(tmp_path / "spool", tmp_path)
    assert contents(spool) == {"b.txt": "good"}
    assert all("it unpacks to more than 200 times its size" in reason for reason in reasons(spool).values())
    assert (spool.folder / "text.utf8").stat().st_size == 4


def test_a_file_that_must_be_read_whole_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "read_whole", lambda stream: read_whole(stream, 1 << 20))
    (tmp_path / "a.html").write_bytes(b"a" * (1 << 20) + b"b")
    (tmp_path / "b.html").write_bytes(b"a" * (1 << 20))
    spool = spooled(tmp_path / "spool", tmp_path)
    assert [len(t) for t in contents(spool).values()] == [1 << 20]
    assert reasons(spool) == {"a.html": "it is larger than the 1 MiB that its format is read up to"}


@pytest.mark.parametrize(
    "name", ["a.gz", "a.zst", "a.xz", "a.bz2", "a.zip", "a.tar", "a.docx", "a.epub", "a.parquet", "a.arrow", "a.jsonl", "a.csv"]
)
def test_random_bytes_under_any_name_are_named_and_nothing_more(tmp_path, name):
    (tmp_path / name).write_bytes(os.urandom(50_000))
    (tmp_path / "b.txt").write_text("good")
    spool = spooled(tmp_path / "spool", tmp_path)
    assert contents(spool) == {"b.txt": "good"} and reasons(spool).keys() == {name}


def test_without_its_package_a_format_says_what_to_install(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.txt.zst").write_bytes(PACK[".zst"](b"x"))
    (tmp_path / "b.txt").write_text("good")
    code = (
        "import sys\nsys.modules.update(dict.fromkeys(('pyarrow', 'zstandard', 'datasets')))\nfrom pathlib import Path\n"
        "from andrea.config import DataConfig\nfrom andrea.data.spool import Spool\n"
        "spool = Spool(Path(sys.argv[2]), DataConfig(paths=(sys.argv[1], 'hf://datasets/x')))\nlist(spool.fill())\n"
        "for skipped in spool.tally.skipped: print(skipped['reason'])"
    )
    (tmp_path / ".spool").mkdir()
    done = subprocess.run([sys.executable, "-c", code, tmp_path, tmp_path / ".spool"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "hidden",
        ".parquet files need the package pyarrow: pip install 'andrea[formats]'",
        ".zst files need the package zstandard: pip install 'andrea[formats]'",
        "data sets of the hub need the package datasets: pip install 'andrea[hub]'",
    ]


# --- token files of others ----------------------------------------------------------------------------------------------------------


def their_tokenizer(folder: Path) -> tuple[Path, tokenizers.Tokenizer]:
    """A byte-level BPE as GPT-2's, with its separator, in a file of the `tokenizers` library."""
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    theirs.train_from_iterator([TEXT * 9], trainer)
    theirs.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json", theirs


@pytest.mark.parametrize("layout", ["nanoGPT", "llm.c, 16 bits", "llm.c, 32 bits"])
def test_token_files_of_others_become_text_again(tmp_path, layout):
    path, theirs = their_tokenizer(tmp_path)
    documents = [TEXT, "🎉 två\n", "tre"]
    end = theirs.token_to_id("<|endoftext|>")
    ids = [id for text in documents for id in (end, *theirs.encode(text).ids)]
    dtype, header = "<u2", b""
    if layout != "nanoGPT":
        dtype, magic = ("<u4", 20240801) if "32" in layout else ("<u2", 20240520)
        header = np.array([magic, 1, len(ids)] + [0] * 253, "<i4").tobytes()
    (tmp_path / "train.bin").write_bytes(header + np.array(ids, dtype).tobytes())
    assert only(tmp_path / "train.bin", bin_tokenizer=str(path)) == documents


def test_token_files_need_their_own_tokenizer(tmp_path):
    path, _ = their_tokenizer(tmp_path)
    (tmp_path / "a.bin").write_bytes(np.array([5, 40_000], "<u2").tobytes())
    (tmp_path / "b.bin").write_bytes(b"\5\0\6")
    (tmp_path / "c.txt").write_text("good")
    (tmp_path / "words.json").write_text('{"model": {"vocab": {"a": 0}}, "decoder": null}')
    assert "name its tokenizer: --bin-tokenizer gpt2" in reasons(spooled(tmp_path / "s1", tmp_path))["a.bin"]
    found = reasons(spooled(tmp_path / "s2", tmp_path, bin_tokenizer=str(path)))
    assert "it holds the token 40000, but its tokenizer has 275" in found["a.bin"] and "ends within a token" in found["b.bin"]
    assert "does not work on bytes" in reasons(spooled(tmp_path / "s3", tmp_path, bin_tokenizer=str(tmp_path / "words.json")))["a.bin"]
    assert "neither a file nor one that tiktoken" in reasons(spooled(tmp_path / "s4", tmp_path, bin_tokenizer="gpt-none"))["a.bin"]


def test_token_files_made_with_a_tokenizer_of_ours(tmp_path):
    ours = train_bpe([TEXT * 9], 300)
    ours.save(tmp_path / "tokenizer.json")
    ids = [*ours.encode(TEXT), ours.separator, *ours.encode("två")]
    (tmp_path / "val.bin").write_bytes(np.array(ids, "<u2").tobytes())
    assert only(tmp_path / "val.bin", bin_tokenizer=str(tmp_path / "tokenizer.json")) == [TEXT, "två"]


def test_an_option_that_no_file_needs_changes_nothing(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    assert read(tmp_path, field="x", bin_tokenizer="y", encoding="koi8-r") == read(tmp_path) == [("a.txt", TEXT)]
    assert DataConfig().field == "text"
