"""Files: read with care, and written so that nothing is lost.

Whatever a file holds, reading it ends with a value or a ValueError, and its size is looked at before it is read. An OSError of writing
names the file.
"""

import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from reprlib import repr as shown  # short, however large the value is
from typing import Any, BinaryIO

MOST = 16 << 20  # bytes of a JSON file; none of ours but a tokenizer comes near
DEEPEST = 32  # levels of nesting; none of ours comes near
LOCKED_BYTE = 1 << 30  # Windows lets nobody read a byte that is locked, so it is one that the file does not have


class Damaged(ValueError):
    """A stored file is not what was written."""


def size_of(path: Path) -> int:
    """Bytes of a file. Raises ValueError for a folder, and for a pipe or device, which might be read for ever."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Damaged(f"{path} is not a file")
    return found.st_size


def read_text(path: Path, most: int = MOST) -> str:
    """A UTF-8 file of at most `most` bytes. Raises ValueError for a larger one and for other bytes."""
    if (size := size_of(path)) > most:
        raise Damaged(f"{path} has {size:,} bytes; no such file has more than {most:,}, so it is damaged or another's")
    with path.open("rb") as file:
        data = file.read(most)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged(f"{path} cannot be read: it is not UTF-8 at byte {error.start}") from None


def read_json(path: Path, most: int = MOST) -> dict[str, Any]:
    """A JSON file that holds one object, with finite numbers and not nested without end. Raises ValueError for any other."""
    found = parse(read_text(path, most), path)
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [v for c in level for v in (c.values() if isinstance(c, dict) else c) if isinstance(v, dict | list)]
    if level:
        raise Damaged(f"{path} cannot be read: it is nested more than {DEEPEST} deep")
    return found


def parse(text: str, where: object) -> dict[str, Any]:
    """One JSON object. `where` stands in the message of the ValueError for what is none."""
    try:
        found = json.loads(text, parse_constant=finite, parse_float=finite)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Damaged(f"{where} cannot be read: {error or 'it takes more memory than there is'}") from None
    if not isinstance(found, dict):
        raise Damaged(f"{where} cannot be read: it holds {shown(found)}; wanted an object")
    return found


def finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a number")
    return value


def field(found: Mapping[str, Any], name: str, kind: type, where: object) -> Any:
    """found[name], which must be of that kind; an int must fit 63 bits and not be negative. Raises ValueError otherwise."""
    value = found.get(name)
    whole = kind is not int or (not isinstance(value, bool) and isinstance(value, int) and 0 <= value < 2**63)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        value = float(value)
    if not isinstance(value, kind) or not whole:
        raise Damaged(f"{where} is damaged: {name} is {shown(value) if name in found else 'not there'}; wanted {kind.__name__}")
    return value


# --- writing ------------------------------------------------------------------------------------------------------------------------


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError from inside names this file unless it names another: those of writing and closing name none."""
    try:
        yield
    except OSError as error:
        # the second is what replace_bytes writes first, which nobody asked for
        if error.errno is not None and (error.filename is None or str(error.filename) == f"{path}.partial"):
            error.filename = str(path)
        raise


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    replace_text(path, json.dumps(value, indent=2) + "\n")  # ASCII: a path may hold bytes that are no text


def replace_text(path: Path, text: str) -> None:
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Give path this content in one step: whoever reads it sees the old or the new, on a full disk the old."""
    temporary = path.with_name(path.name + ".partial")
    try:
        with named(path):
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()  # on a full disk every byte counts
        raise


def append(file: FileIO, data: bytes, path: Path) -> None:
    """Write all of data to an unbuffered file, so that a full disk is noticed now and not when the file is closed."""
    with named(path):
        while data:
            data = data[file.write(data) :]


def flush(path: Path) -> None:
    """Ask the system to put a file or folder on the disk now. Windows cannot open folders, and does not need to."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        with named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def hold(path: Path) -> BinaryIO | None:
    """Lock a file that is there until the handle is closed or the process ends, however it ends. None where another has it."""
    file = path.open("r+b")
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held; or a file system without locks, of which nobody can say that it is not
        file.close()
        return None
    return file
