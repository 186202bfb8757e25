"""Inference: the cache, sampling, and generation token by token."""

from andrea.infer.cache import LayerCache, new_cache
from andrea.infer.generate import Completion, Token, collect, complete, generate, prompt_ids
from andrea.infer.sample import Sampling, penalise, probabilities, sample

__all__ = [
    "Completion",
    "LayerCache",
    "Sampling",
    "Token",
    "collect",
    "complete",
    "generate",
    "new_cache",
    "penalise",
    "probabilities",
    "prompt_ids",
    "sample",
]
