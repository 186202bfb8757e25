"""The code blocks of README and docs/ run as they stand, in order, each page in a folder of its own.

Two things are exchanged: training takes seconds (`--minutes` is made small), and `python dev.py` is left out: .ci/run is its test.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def hurry(line: str) -> str:
    """The same command with a budget of a second."""
    line = re.sub(r"--seconds [\d.]+", "--seconds 1", re.sub(r"--minutes [\d.]+", "--minutes 0.02", line))
    if re.match(r"andrea (train|demo)\b", line) and "--minutes" not in line and "--steps" not in line and "--resume" not in line:
        command, sign, comment = line.partition("  #")
        line = f"{command} --minutes 0.02{sign}{comment}"
    return line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_code_of_the_page_runs(page, tmp_path, text_file):
    (tmp_path / "book.txt").write_bytes(text_file.read_bytes())
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for language, code in blocks(page):
        if language == "python":
            command = [sys.executable, "-c", code]
        elif language == "bash":
            lines = [hurry(line) for line in code.splitlines() if not re.match(r"(python3?|make) (dev\.py|demo|test|setup)|git |cd ", line)]
            command = ["bash", "-euo", "pipefail", "-c", "\n".join(lines)]
        else:
            assert language in ("text", "json"), f"{page.name} has a block of {language!r}, which nothing runs"
            continue
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
