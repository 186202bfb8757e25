import numpy as np
import pytest

from andrea.data.shards import HEADER, ShardWriter, Tokens


def written(folder, vocab_size, *arrays, shard_tokens=1 << 20):
    with ShardWriter(folder, "train", vocab_size, shard_tokens) as writer:
        for array in arrays:
            writer.write(np.asarray(array))
    return sorted(folder.glob("train-*.tok"))


@pytest.mark.parametrize(("vocab_size", "width"), [(2, 2), (65_536, 2), (65_537, 4), (70_000, 4)])
def test_the_largest_ids_come_back(tmp_path, vocab_size, width):
    ids = [0, 1, min(65_535, vocab_size - 1), min(65_536, vocab_size - 1), vocab_size - 1]
    (file,) = written(tmp_path, vocab_size, ids)
    assert Tokens([file]).read(0, 5).tolist() == ids
    assert file.stat().st_size == 32 + 5 * width


def test_reading_crosses_shard_borders(tmp_path):
    ids = np.random.default_rng(0).integers(0, 300, 123)
    files = written(tmp_path, 300, ids[:1], ids[1:50], ids[50:50], ids[50:], shard_tokens=7)
    tokens = Tokens(files)
    assert len(files) == 18 and len(tokens) == 123
    for start in range(124):
        for stop in (start, start + 1, start + 6, start + 7, start + 42, 123):
            if start <= stop <= 123:
                read = tokens.read(start, stop)
                assert read.dtype == np.int64 and read.tolist() == ids[start:stop].tolist()


def test_a_full_last_shard_is_not_followed_by_an_empty_one(tmp_path):
    assert len(written(tmp_path, 9, np.zeros(14, int), shard_tokens=7)) == 2


def test_no_tokens_are_one_empty_file(tmp_path):
    files = written(tmp_path, 9)
    assert len(files) == 1 and len(Tokens(files)) == 0 and Tokens(files).read(0, 0).size == 0
    assert len(Tokens([])) == 0


@pytest.mark.parametrize("bad", [-1, 300, 65_536 + 5])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_is_left(tmp_path, bad):
    with pytest.raises(ValueError, match=r"vocab_size=300 allows 0 to 299"):
        written(tmp_path, 300, [1, 2, 3], [4, bad])
    assert list(tmp_path.iterdir()) == []


def test_files_have_no_final_name_until_they_are_complete(tmp_path):
    with ShardWriter(tmp_path, "val", 300, shard_tokens=2) as writer:
        writer.write(np.array([1, 2, 3]))
        assert {file.suffix for file in tmp_path.iterdir()} == {".part"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["val-00000.tok", "val-00001.tok"]


def test_reading_outside_is_refused(tmp_path):
    tokens = Tokens(written(tmp_path, 300, [1, 2, 3]))
    for start, stop in ((-1, 2), (0, 4), (2, 1)):
        with pytest.raises(ValueError, match="not all within the 3"):
            tokens.read(start, stop)


def test_damaged_files_are_named(tmp_path):
    (file,) = written(tmp_path, 300, [1, 2, 3])
    good = file.read_bytes()

    def refused(data, why):
        file.write_bytes(data)
        with pytest.raises(ValueError, match=why):
            Tokens([file])

    refused(good[:-1], "is damaged: 3 tokens of 2 bytes")
    refused(good + b"\0", "is damaged")
    refused(good[:20], "is not a token file")
    refused(b"", "is not a token file")
    refused(b"X" + good[1:], "is not a token file")
    magic, _, width, count, vocab_size = HEADER.unpack(good[:32])
    refused(HEADER.pack(magic, 2, width, count, vocab_size) + good[32:], "format_version 2; this version of ANDREA reads 1")
    refused(HEADER.pack(magic, 1, 4, count, vocab_size) + good[32:], "is damaged")


def test_the_digest_is_of_the_tokens_and_not_of_how_they_were_written(tmp_path):
    ids, digests = np.arange(100), []
    for number, pieces in enumerate(([ids], [ids[:33], ids[33:]], [ids[:-1]])):
        with ShardWriter(tmp_path, str(number), 300, shard_tokens=13 + number) as writer:
            for piece in pieces:
                writer.write(piece)
        digests.append(writer.digest.hexdigest())
    assert digests[0] == digests[1] != digests[2]
