import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.config import DataConfig
from andrea.data.formats import texts
from andrea.data.tokenizer import BPETokenizer, byte_tokenizer, char_tokenizer, load_tokenizer, train_bpe

PLAY = "".join(f"First Citizen:\nSpeak, speak; it's the {i}th time. We'll hear thee, 'tis well!\n\n" for i in range(301))
HARD = [
    "hello !",
    "   x",
    "a\r\nb\rc\n",
    "\t\n ",
    "",
    "\x00",
    "e\u0301",
    "é",
    "🎉",
    "👍🏽",
    "🏽",
    " " * 10_000,
    "a<|endoftext|>b",
    "<|endoftext|>",
    "\x1c \x1c\x85\u3000 x",
    "it's I'LL we've 'x ''s",
    "١٢٣ ½ Ⅷ",
    "\ufffd",
]


@pytest.fixture(scope="module")
def library() -> list[str]:
    return [text for _, text in texts(DataConfig())]


@pytest.fixture(scope="module")
def bpe(library, tmp_path_factory):
    """Trained on a sixth of the built-in corpus, saved and loaded again, as every user of it meets it."""
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    train_bpe([*library[::6], PLAY], 4_999).save(path)
    return load_tokenizer(path), tokenizers.Tokenizer.from_file(str(path))


def saved(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    return load_tokenizer(tmp_path / "tokenizer.json"), tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))


def test_ids_are_the_bytes_then_the_merges_then_the_separator(bpe):
    t, _ = bpe
    assert t.kind == "bpe" and t.vocab_size == 4_999 and t.separator == 4_998
    assert [t.token_bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]
    assert len(t.merges) == 4_999 - 257 and all(t.token_bytes(256 + i) == a + b for i, (a, b) in enumerate(t.merges))
    assert t.token_bytes(t.separator) == b""


def test_the_tokenizers_library_gives_the_same_ids_on_the_whole_built_in_corpus(bpe, library):
    ours, theirs = bpe
    expected = theirs.encode_batch(library, add_special_tokens=False)
    for text, ids, other in zip(library, ours.encode_batch(library), expected, strict=True):
        assert ids.tolist() == other.ids, text[:80]


@pytest.mark.parametrize("text", [*HARD, PLAY], ids=range(len(HARD) + 1))
def test_hard_texts_come_back_byte_for_byte_and_agree_with_the_tokenizers_library(bpe, text):
    ours, theirs = bpe
    ids = ours.encode(text)
    assert ours.decode(ids) == text and ours.separator not in ids
    assert ids == theirs.encode(text, add_special_tokens=False).ids


@settings(max_examples=400, deadline=None)
@given(st.text() | st.text(alphabet=" \n\t\r\u3000\x1c'sdelv.1é", max_size=40))
def test_any_unicode_text_comes_back_and_agrees_with_the_tokenizers_library(bpe, text):
    ours, theirs = bpe
    ids = ours.encode(text)
    assert ours.decode(ids) == text and ours.separator not in ids
    assert ids == theirs.encode(text, add_special_tokens=False).ids


def test_every_token_is_reached_by_its_own_bytes(bpe):
    t, _ = bpe
    for i in range(256, t.separator):
        piece = t.token_bytes(i)
        if "\ufffd" not in piece.decode("utf-8", "replace"):
            assert t.encode(piece.decode()) == [i]


@pytest.mark.parametrize("text", [" " * 1_500_001 + "x", "\u3000" * 1_200_007 + "é " + "\n" * 1_100_000, "a" * 300_001 + "  b\n" * 50_000])
def test_enormous_runs_are_encoded_and_come_back(bpe, text):
    t, _ = bpe
    assert t.decode(t.encode(text)) == text


def test_a_long_text_is_encoded_in_stretches_to_the_ids_of_one_go(bpe, library):
    t, _ = bpe
    text = "".join(library[:120]) + "  \n\n   x" * 30_011 + "".join(HARD) * 31
    assert len(text) > 1_000_000
    assert t.encode(text) == t.encoding.encode_ordinary(text)


def test_training_twice_and_in_another_order_gives_the_same_merges():
    lines = PLAY.splitlines(keepends=True)
    assert train_bpe(lines, 400).merges == train_bpe(lines, 400).merges == train_bpe(reversed(lines), 400).merges


def test_a_small_text_gives_a_smaller_vocabulary():
    assert train_bpe([], 1_000).vocab_size == 257
    assert train_bpe(["abc"], 1_000).vocab_size == 257
    t = train_bpe(["abab abab"], 1_000)
    assert 257 < t.vocab_size < 270 and t.decode(t.encode("abab abab")) == "abab abab"


def test_a_vocabulary_without_room_for_the_bytes_is_refused():
    with pytest.raises(ValueError, match="vocab_size=256 is too small"):
        train_bpe([PLAY], 256)
    assert train_bpe([PLAY], 258).vocab_size == 258


def test_two_merges_of_one_piece_are_refused():
    with pytest.raises(ValueError, match="two merges make the same piece"):
        BPETokenizer([(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")])


def test_decoding_never_fails(bpe):
    t, _ = bpe
    assert t.decode([t.vocab_size, -1, 8_500_000]) == "\ufffd" * 3
    assert t.token_bytes(t.vocab_size) == "\ufffd".encode()
    assert t.decode([0xC3]) == "\ufffd" and t.decode([0xC3, 0xA9]) == "é"
    assert t.decode([t.separator, 65, t.separator, 66]) == "AB"
    assert t.decode(np.array([65, 66])) == "AB"
    assert t.decode([]) == ""


@pytest.mark.parametrize(
    "make", [lambda: train_bpe([PLAY], 300), byte_tokenizer, lambda: char_tokenizer(["ab"])], ids=["bpe", "byte", "char"]
)
def test_half_a_surrogate_pair_is_refused_by_name(make):
    with pytest.raises(ValueError, match=r"U\+D800 at offset 1 is half a surrogate pair"):
        make().encode("a\ud800b")


def test_characters_are_sorted_and_an_unseen_one_is_named(tmp_path):
    t, theirs = saved(char_tokenizer(["hello", "é🎉\n", "<|endoftext|>"]), tmp_path)
    characters = sorted(set("helloé🎉\n<|endoftext|>"))
    assert t.kind == "char" and t.vocab_size == len(characters) + 1 and t.separator == len(characters)
    text = "<|endoftext|>hole\n🎉é"
    assert t.encode(text) == [characters.index(c) for c in text] == theirs.encode(text).ids
    assert t.decode(t.encode(text)) == text == theirs.decode(t.encode(text))
    for unseen, named in (("z", r"'z' \(U\+007A\)"), ("\U0010ffff", r"U\+10FFFF"), ("\0", r"'\\x00' \(U\+0000\)")):
        with pytest.raises(ValueError, match=f"{named}.* at offset 3"):
            t.encode("hel" + unseen)


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_bytes_are_their_own_ids(tmp_path, text):
    t, theirs = saved(byte_tokenizer(), tmp_path)
    assert t.kind == "byte" and t.vocab_size == 257 and t.separator == 256
    assert t.encode(text) == list(text.encode()) == theirs.encode(text).ids
    assert t.decode(t.encode(text)) == text


def test_a_stored_tokenizer_is_checked(tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer = train_bpe([PLAY], 300)
    tokenizer.save(path)
    good = path.read_text(encoding="utf-8")

    def load_changed(change):
        stored = json.loads(good)
        change(stored["model"])
        path.write_text(json.dumps(stored), encoding="utf-8")
        return load_tokenizer(path)

    assert load_changed(lambda model: None).merges == tokenizer.merges
    with pytest.raises(ValueError, match="format_version 2; this version of ANDREA reads 1"):
        load_changed(lambda model: model["andrea"].update(format_version=2))
    with pytest.raises(ValueError, match="not a tokenizer"):
        load_changed(lambda model: model.pop("andrea"))
    for damage in (
        lambda model: model["merges"].pop(),
        lambda model: model["merges"].append(["a", "\ue000"]),
        lambda model: model["vocab"].update({"a": 7_000}),
        lambda model: model["andrea"].update(kind="word"),
    ):
        with pytest.raises(ValueError, match="is damaged"):
            load_changed(damage)
    path.write_text("not json")
    with pytest.raises(ValueError, match="not a tokenizer"):
        load_tokenizer(path)
