"""Inference: decoders, sampling, the engine that answers many at once, and generation token by token."""

from andrea.infer.cache import LayerCache, new_cache
from andrea.infer.decoder import Decoder, TorchDecoder
from andrea.infer.engine import Engine, Full, Sequence
from andrea.infer.generate import SLOTS, Completion, answer, ask, collect, complete, generate, tokens
from andrea.infer.sample import Sampling, choose, penalise, probabilities, sample
from andrea.infer.text import Token, prompt_ids

__all__ = [
    "SLOTS",
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
    "ask",
    "choose",
    "collect",
    "complete",
    "generate",
    "new_cache",
    "penalise",
    "probabilities",
    "prompt_ids",
    "sample",
    "tokens",
]
