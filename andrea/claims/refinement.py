"""Whether blocks refine: the loss when the last k are dropped, and when each is skipped, of trained models and untrained ones."""

import copy
from typing import Any

import torch

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, corpus, grown
from andrea.config import override
from andrea.insight.edit import edited, skip
from andrea.insight.flow import block_influence, held_out, row_losses
from andrea.insight.trace import stations, trace
from andrea.model import Transformer


def measure(task: Task, arm: Arm) -> Figures:
    """`dropped`: the loss after the first k blocks, k = 0 to L; `skipped`: the rise without each block; `kept`: the mean cosine of
    each block's input and output."""
    found, model = grown(task.config, task.seed, arm.build)
    text = corpus(task.config.data, task.config.model.vocab_size)
    rows = held_out(text.data.val, task.config.model.context, 128)
    whole = loss(model, rows)
    dropped = [loss(first(model, k), rows) for k in range(len(model.blocks) + 1)]
    skipped = []
    for i in range(len(model.blocks)):
        with edited(model, skip(model, f"blocks.{i}")):
            skipped.append(loss(model, rows) - whole)
    kept = [1 - influence for influence in block_influence(trace(model, rows[:16, :-1], stations(len(model.blocks))))]
    return {**found, "whole": whole, "dropped": dropped, "skipped": skipped, "kept": kept}


def loss(model: Transformer, rows: torch.Tensor) -> float:
    return row_losses(model, rows, batch=64).mean().item()


def first(model: Transformer, k: int) -> Transformer:
    """The model without the blocks after the first k; it shares the weights."""
    part = copy.copy(model)
    part._modules = {**model._modules, "blocks": model.blocks[:k]}
    return part


def gained(f: Any, k: int) -> float:
    """The share of the whole model's gain over its embedding that stands after k blocks."""
    return (f["dropped"][0] - f["dropped"][k]) / (f["dropped"][0] - f["whole"])


def later_half(f: Any) -> float:
    """Mean loss after each block of the later half, less that of the same number of blocks before: below 0, loss goes on falling."""
    half = len(f["skipped"]) // 2
    return (f["dropped"][-1] - f["dropped"][half]) / half


CLAIM = Claim(
    name="refinement",
    section="2.3a",
    sentence="Each block refines, not replaces; the residual stream accumulates.",
    means="In a trained model of 12 blocks the loss read off the stream falls on through the later half; what goes into a block and what "
    "comes out have a cosine above 0.5 (refined, not replaced); and without any one block from the second on the loss rises by less than "
    "a quarter of what the whole model gains over the frequency of tokens.",
    published="Deleting one block of a residual net hurts little, as if many paths were averaged (Veit 2016); GPT-2 keeps 72 to 95 % of "
    "its first choices without one middle layer, and needs its first and last (Lad 2024). Later layers add less and less (Csordas 2025).",
    sources=("Veit et al. 2016, arXiv:1605.06431", "Lad et al. 2024, arXiv:2406.19384", "Csordas et al. 2025, arXiv:2505.13898"),
    controls="12 layers, D 64, 300 steps of 1,024 tokens, AdamW; 8,192 tokens of validation text. The same models untrained stand "
    "beside. The final norm and the unembedding read the stream wherever it is cut, without being learnt for it: a logit lens, which "
    "says less than is there.",
    arms={"trained": Arm(), "untrained": Arm(("train.steps=1", "optim.lr=1e-12"))},
    base=override(SMALL, "model.n_layer=12"),
    measure=measure,
    questions=(
        Question("what a block of the later half adds to the loss", lambda f: later_half(f["trained"]), 0.002),
        Question(
            "0.5 less the cosine of input and output, the least of the blocks after the first",
            lambda f: 0.5 - min(f["trained"]["kept"][1:]),
            0.02,
            "cosine",
        ),
        Question(
            "the costliest block after the first, less a quarter of all that is gained",
            lambda f: max(f["trained"]["skipped"][1:]) - (f["trained"]["unigram"] - f["trained"]["whole"]) / 4,
            0.01,
        ),
        Question(
            "half of the gain less what the first half of the blocks gains",
            lambda f: 0.5 - gained(f["trained"], 6),
            0.02,
            "share",
            needed=False,
        ),
        Question("untrained: what a block of the later half adds", lambda f: later_half(f["untrained"]), 0.002, needed=False),
    ),
    seeds=tuple(range(5)),
)
