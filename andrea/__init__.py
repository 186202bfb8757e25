"""ANDREA: a small GPT-style language model, and the engine that grows it. Names are handed on when they are first used."""

from importlib import import_module
from typing import Any

from andrea.version import __version__

HOMES = {
    "ModelConfig": "andrea.config",
    "RunConfig": "andrea.config",
    "presets": "andrea.presets:PRESETS",
    "Transformer": "andrea.model",
    "train": "andrea.training.loop",
    "resume": "andrea.training.loop",
    "load": "andrea.checkpoint",
    "generate": "andrea.infer.generate",
    "count": "andrea.accounting",
}

__all__ = ["ModelConfig", "RunConfig", "Transformer", "__version__", "count", "generate", "load", "presets", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"andrea has no {name!r}; it has {', '.join(__all__)}")
    module, _, renamed = HOMES[name].partition(":")
    return getattr(import_module(module), renamed or name)


def __dir__() -> list[str]:
    return __all__
