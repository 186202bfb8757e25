"""Real text and a real run, made once for every test that reads them."""

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from andrea.config import RunConfig, override
from andrea.presets import preset

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported: tests share the machine with the programs they start

if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # two processes that compile at once may give different code the same name (Numba 0.68)
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parent / "__pycache__" / f"numba-{worker}"))

STDLIB = Path(sysconfig.get_path("stdlib"))


def small(*paths: Path, changes: tuple[str, ...] = ()) -> RunConfig:
    """A run of a few seconds on the given files, of the specification's model."""
    defaults = (
        "positions=learned",
        "init=gpt2",
        "vocab_size=321",
        "context=32",
        "n_layer=2",
        "n_head=2",
        "d_model=32",
        "batch_tokens=256",
        "steps=12",
        "eval_tokens=512",
    )
    given = {change.partition("=")[0] for change in changes}
    config = override(preset("andrea-1m"), *(d for d in defaults if d.partition("=")[0] not in given), *changes)
    return replace(config, data=replace(config.data, paths=tuple(map(str, paths))))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models this small gain nothing from threads, and on a busy machine threads that wait for each other cost tenfold."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 90 kB of real text: one module of the standard library."""
    path = tmp_path_factory.mktemp("text") / "argparse.txt"
    path.write_bytes((STDLIB / "argparse.py").read_bytes())
    return path


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """A run that went to its end."""
    from andrea.training.start import train

    run = tmp_path_factory.mktemp("finished") / "runs" / "small-1"
    for _ in train(small(text_file), run):
        pass
    return run
