"""A story as one page: a file that holds its own script, style and numbers, and loads nothing."""

import json
from html import escape
from importlib.resources import files
from typing import Any


def page(story: dict[str, Any]) -> str:
    """The whole page; numbers keep six digits. The policy in its head lets it load nothing, whatever the text says."""
    data = json.dumps(rounded(story), separators=(",", ":"), ensure_ascii=False)
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")  # no tag ends or opens in it
    return files("andrea.insight").joinpath("page.html").read_text(encoding="utf-8").replace("STORY", data, 1)


def frame(story: dict[str, Any]) -> str:
    """The page for a notebook: in a frame of its own, which may run its script and nothing else."""
    return f'<iframe sandbox="allow-scripts" style="width: 100%; height: 720px; border: 0" srcdoc="{escape(page(story))}"></iframe>'


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value
