"""Inference: decoders, sampling, the engine that answers many at once, and generation token by token."""

from andrea.infer.cache import LayerCache, new_cache
from andrea.infer.decoder import Decoder, TorchDecoder
from andrea.infer.engine import Engine, Full, Sequence, Token
from andrea.infer.generate import Completion, answer, collect, complete, generate
from andrea.infer.sample import Sampling, choose, penalise, probabilities, sample
from andrea.infer.text import prompt_ids

__all__ = [
    "Completion",
    "Decoder",
    "Engine",
    "Full",
    "LayerCache",
    "Sampling",
    "Sequence",
    "Token",
    "TorchDecoder",
    "answer",
    "choose",
    "collect",
    "complete",
    "generate",
    "new_cache",
    "penalise",
    "probabilities",
    "prompt_ids",
    "sample",
]
