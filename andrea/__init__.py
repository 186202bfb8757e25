"""ANDREA: a small GPT-style language model, and the engine that grows it. Names are handed on when they are first used."""

from importlib import import_module
from typing import Any

from andrea.version import __version__

HOMES = {
    "ModelConfig": "andrea.config",
    "RunConfig": "andrea.config",
    "Transformer": "andrea.model",
    "train": "andrea.training.start",
    "resume": "andrea.training.start",
    "load": "andrea.checkpoint",
    "generate": "andrea.infer.generate",
    "trace": "andrea.insight.trace",
    "count": "andrea.accounting",
}

__all__ = ["ModelConfig", "RunConfig", "Transformer", "__version__", "count", "generate", "load", "presets", "resume", "trace", "train"]


def __getattr__(name: str) -> Any:
    if name == "presets":
        return import_module("andrea.presets")
    if name not in HOMES:
        raise AttributeError(f"andrea has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
