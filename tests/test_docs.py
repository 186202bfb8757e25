"""The code blocks of README and docs/ run as they stand, in order, each page in a folder of its own.

Exchanged are: training and planning take seconds (`--minutes` is made small); there are a few hundred stories; of the standard library less
is held back to measure on; and `python dev.py` is left out, of which .ci/run is the test. What the README shows first begins as it does for
the reader, the rest warm (warm.py).
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from warm import program

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def hurry(line: str) -> str:
    """The same command with a budget of a second, and little to read."""
    line = re.sub(r"--seconds [\d.]+", "--seconds 1", re.sub(r"--minutes [\d.]+", "--minutes 0.02", line))
    command, sign, comment = line.partition("  #")
    if re.match(r"andrea (train|demo|plan)\b", line) and "--minutes" not in line and "--steps" not in line and "--resume" not in line:
        command += " --minutes 0.02"
    if re.match(r"andrea train --minutes", line):  # on the standard library: the last evaluation is as long as everything before it
        command += " --set val_fraction=0.01"
    if "--corpus stories" in line and "--stories" not in line:
        command += " --stories 300"
    return command + sign + comment


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A folder with an `andrea` that begins warm."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "andrea").write_text(f'#!/bin/sh\nexec {shlex.join(program())} "$@"\n', encoding="utf-8")
    (folder / "andrea").chmod(0o755)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_code_of_the_page_runs(page, tmp_path, text_file, warm):
    (tmp_path / "book.txt").write_bytes(text_file.read_bytes())
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ways = {"cold": own, "warm": f"{warm}{os.pathsep}{own}"}
    for number, (language, code) in enumerate(blocks(page)):
        if language == "python":
            command = [sys.executable, "-c", code]
        elif language == "bash":
            lines = [hurry(line) for line in code.splitlines() if not re.match(r"(python3?|make) (dev\.py|demo|test|setup)|git |cd ", line)]
            command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
        else:
            assert language in ("text", "json"), f"{page.name} has a block of {language!r}, which nothing runs"
            continue
        env = {**os.environ, "PATH": ways["cold" if page == PAGES[0] and number <= 1 else "warm"]}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
        assert done.returncode == 0, f"{page.name}:\n{code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_every_page_shows_code_or_is_linked_from_the_readme():
    readme = PAGES[0].read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"docs/{page.name}" in readme, page.name
    assert any(language == "bash" for language, _ in blocks(PAGES[0]))


def test_every_link_to_a_file_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_names_that_andrea_hands_on_are_there():
    import andrea

    promised = [
        "ModelConfig",
        "RunConfig",
        "Transformer",
        "__version__",
        "count",
        "generate",
        "load",
        "presets",
        "resume",
        "trace",
        "train",
    ]
    assert andrea.__all__ == promised
    for name in andrea.__all__:
        assert getattr(andrea, name) is not None, name
    with pytest.raises(AttributeError, match="andrea has no 'trian'"):
        _ = andrea.trian
