"""Tables: a document is the text in one field of a row. JSON lines, separated values, Parquet, Arrow, data sets of the hub."""

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

from andrea.data.formats.packed import seekable
from andrea.data.formats.reading import Reading, Rows, missing
from andrea.data.text import WHOLE, NotText


def lines(blocks: Iterable[str]) -> Iterator[str]:
    """Lines with their ends. Raises NotText for one that is longer than WHOLE."""
    held = ""
    for block in blocks:
        *whole, held = (held + block).split("\n")
        yield from (line + "\n" for line in whole)
        if len(held) > WHOLE:
            raise NotText(f"it has a line of more than {WHOLE >> 20} million characters")
    if held:
        yield held


def json_lines(stream: BinaryIO, reading: Reading) -> Rows:
    first: Any = None
    used = False
    for number, line in enumerate(lines(reading.text(stream)), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            reading.tally.rows_skipped["no JSON"] += 1
            continue
        first = row if first is None else first
        if (text := reading.value(row)) is not None:
            used = True
            yield number, text
    if not used:
        raise NotText(f"no line has text in {reading.config.field!r}{keys_of(first)}")


def keys_of(row: Any) -> str:
    return f"; the first has {names(row)}: choose one with --field" if isinstance(row, dict) and row else ""


def names(known: Iterable[object]) -> str:
    return ", ".join(repr(str(name)[:40]) for name, _ in zip(known, range(12), strict=False))


def separated(stream: BinaryIO, reading: Reading, delimiters: str) -> Rows:
    """Rows under a header, separated by whichever delimiter the header has most of. A single column needs no name."""
    csv.field_size_limit(WHOLE)
    text = lines(reading.text(stream))
    head = next(text, "")
    delimiter = max(delimiters, key=head.count)
    rows = csv.reader(chain([head], text), delimiter=delimiter)
    header = [name.strip() for name in next(rows, [])]
    column = reading.config.field if len(header) > 1 else (header or [""])[0]
    if column not in header or not column:
        raise NotText(f"it has no column {column!r}; it has {names(header)}: choose one with --field")
    for number, row in enumerate(rows, 1):
        if len(header) == 1:
            row = [delimiter.join(row)]  # what looks like more columns is text
        text_of = dict(zip(header, row, strict=False)).get(column)
        if text_of is None or len(row) > len(header):
            reading.tally.rows_skipped[f"no text in {column!r}" if text_of is None else "more cells than the header has"] += 1
        else:
            yield number, text_of


def parquet(stream: BinaryIO, reading: Reading) -> Rows:
    pyarrow = load_pyarrow(".parquet")
    file = pyarrow.parquet.ParquetFile(seekable(stream))
    column = text_column(pyarrow, file.schema_arrow, reading)
    yield from values(file.iter_batches(batch_size=128, columns=[column]), column, reading)


def arrow(stream: BinaryIO, reading: Reading) -> Rows:
    """Arrow's file and its stream layout; .feather is the first."""
    pyarrow = load_pyarrow(".arrow and .feather")
    file = seekable(stream)
    try:
        table = pyarrow.ipc.open_file(file)
        batches = map(table.get_batch, range(table.num_record_batches))
    except pyarrow.ArrowInvalid:
        file.seek(0)
        batches = table = pyarrow.ipc.open_stream(file)
    yield from values(batches, text_column(pyarrow, table.schema, reading), reading)


def load_pyarrow(what: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        missing("pyarrow", f"{what} files")
    return pyarrow


TEXT = ("string", "large_string", "string_view")  # Arrow's types of it


def text_column(pyarrow: Any, schema: Any, reading: Reading) -> str:
    """The field, if it is a column of text. Raises NotText."""
    types, wanted = pyarrow.types, reading.config.field
    kinds = {column.name: column.type.value_type if types.is_dictionary(column.type) else column.type for column in schema}
    texts = [
        name for name, kind in kinds.items() if any(getattr(types, f"is_{known}")(kind) for known in TEXT if hasattr(types, f"is_{known}"))
    ]
    if wanted not in texts:
        raise NotText(f"it has no column {wanted!r} of text; it has {names(texts) or 'none'}: choose one with --field")
    return wanted


def values(batches: Iterable[Any], column: str, reading: Reading) -> Rows:
    number = 0
    for batch in batches:
        for value in batch.column(batch.schema.get_field_index(column)):
            number += 1
            if (text := reading.value({column: value.as_py()})) is not None:
                yield number, text


def hub_rows(url: str, reading: Reading) -> Rows:
    """hf://datasets/NAME?split=train&name=CONFIGURATION, streamed."""
    try:
        import datasets
    except ImportError:
        missing("datasets", "data sets of the hub", "hub")
    parts = urlsplit(url)
    options = {key: values[0] for key, values in parse_qs(parts.query).items()}
    if parts.netloc != "datasets" or not parts.path.strip("/") or not options.keys() <= {"name", "split", "revision"}:
        raise NotText("wanted hf://datasets/NAME, with ?split=, name= or revision= where needed")
    rows = datasets.load_dataset(unquote(parts.path[1:]), streaming=True, **{"split": "train", **options})
    first, used = None, False
    for number, row in enumerate(rows, 1):
        first = first or row
        if (text := reading.value(row)) is not None:
            used = True
            yield number, text
    if not used:
        raise NotText(f"no row has text in {reading.config.field!r}{keys_of(first)}")
