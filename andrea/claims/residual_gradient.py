"""Without residual connections: is the gradient lost within 12 layers, or the signal?"""

from dataclasses import replace
from typing import Any

import torch

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.untrained import blocks, decades, fresh, gradient_sizes, loss_of, random_tokens, slope, stream, token_cosine
from andrea.config import ModelConfig, RunConfig, TrainConfig

DEPTHS = (2, 4, 8, 12, 24, 64)  # of the narrow arms; the wide ones have the document's 12


def measure(task: Task, arm: Arm) -> Figures:
    """By depth: how many decades the gradient changes by, how alike tokens have become, what queries and keys get."""
    c = task.config.model
    return {str(L): at_depth(replace(c, n_layer=L), task.seed, arm) for L in (DEPTHS if c.d_model < 768 else (12,))}


def at_depth(c: ModelConfig, seed: int, arm: Arm) -> dict[str, Any]:
    model, ids = fresh(c, seed, arm.build), random_tokens(c, 2, seed)
    states = stream(model, ids)
    loss = loss_of(model, states[-1], ids)
    sizes = gradient_sizes(loss, states)
    qkv = torch.autograd.grad(loss, [block.attn.qkv.weight for block in blocks(model)])
    first, last = ([part.norm().item() for part in (w[: 2 * c.d_model], w[2 * c.d_model :])] for w in (qkv[0], qkv[-1]))
    logs = [decades(size, sizes[-1]) for size in sizes]
    return {
        "embedding": logs[0],  # decades from the last block's output to the embedding; below 0 the gradient shrinks on its way down
        "first": logs[1],  # to the first block's output
        "per_layer": slope(range(len(logs) - 1), logs[1:]),  # above 0 it shrinks
        "cosine": token_cosine(states[-1]),
        "query_key": decades(first[0], first[1]),  # gradient of the first block's queries and keys, over that of its values
        "query_key_last": decades(last[0], last[1]),
        "profile": logs if c.n_layer == 12 else None,
    }


NONE, NO_NORM, XAVIER, NARROW = "model.residual=false", "model.norm=none", "model.init=xavier", "model.d_model=64"
CLAIM = Claim(
    name="residual-gradient",
    section="2.1a",
    sentence="A 12-layer stack without residuals loses the gradient long before the embeddings.",
    means="With the two additions of the document's block taken out and all else left (LayerNorm before each sublayer, GPT-2 "
    "initialisation, D 768, 12 layers, float64), the gradient that reaches the embedding is less than a hundredth of that at the last "
    "block's output.",
    published="Without skips or MLPs attention makes all tokens alike, doubly exponentially with depth (Dong 2021), and then queries "
    "and keys get no gradient (Noci 2022); short paths through the skips carry most of it (Veit 2016). With other initialisations deep "
    "transformers train without skips (He 2023). A norm before each sublayer divides by the small size of what it reads, and so "
    "multiplies the gradient back: what is lost without residuals is first of all the signal.",
    sources=(
        "Dong, Cordonnier, Loukas 2021, arXiv:2103.03404",
        "Noci et al. 2022, arXiv:2206.03126",
        "Veit, Wilber, Belongie 2016, arXiv:1605.06431",
        "He et al. 2023, arXiv:2302.10322",
    ),
    controls="Same seeds in every arm, so that all matrices begin equal where the initialisation is the same; random tokens, 2 "
    "sequences of 16; float64, so that nothing vanishes by rounding. Positive control: 2 layers.",
    arms={
        "with residual": Arm(),
        "no residual": Arm((NONE,)),
        "no residual, no norm": Arm((NONE, NO_NORM)),
        "narrow no residual": Arm((NONE, NARROW)),
        "narrow no residual, no norm": Arm((NONE, NO_NORM, NARROW)),
        "narrow no residual, xavier": Arm((NONE, XAVIER, NARROW)),
        "narrow no residual, no norm, xavier": Arm((NONE, NO_NORM, XAVIER, NARROW)),
    },
    base=RunConfig(ModelConfig(vocab_size=257, context=16, n_head=4), train=TrainConfig(batch_tokens=32, steps=1)),
    measure=measure,
    questions=(
        Question(
            "no residual, 12 layers, D 768: decades lost, beyond 2", lambda f: f["no residual"]["12"]["embedding"] + 2, 0.25, "decades"
        ),
        Question(
            "no residual and no norm, 12 layers, D 768: decades lost, beyond 2",
            lambda f: f["no residual, no norm"]["12"]["embedding"] + 2,
            0.25,
            "decades",
            needed=False,
        ),
        Question(
            "no residual, 12 layers, D 64: decades lost, beyond 2",
            lambda f: f["narrow no residual"]["12"]["embedding"] + 2,
            0.25,
            "decades",
            needed=False,
        ),
        Question(
            "no residual, 12 layers, D 64, Xavier: decades lost, beyond 2",
            lambda f: f["narrow no residual, xavier"]["12"]["embedding"] + 2,
            0.25,
            "decades",
            needed=False,
        ),
        Question(
            "no residual, D 768: the signal is lost: cosine between tokens above 0.99 after 12 layers",
            lambda f: 0.99 - f["no residual"]["12"]["cosine"],
            0.001,
            "cosine",
            needed=False,
        ),
        Question(
            "no residual, D 768: the last block's queries and keys get a hundredth of the gradient of its values, or less",
            lambda f: f["no residual"]["12"]["query_key_last"] + 2,
            0.25,
            "decades",
            needed=False,
        ),
        Question(
            "control: 2 layers without residual, D 64, lose less than 2 decades",
            lambda f: -2 - f["narrow no residual"]["2"]["embedding"],
            0.25,
            "decades",
            needed=False,
        ),
    ),
    seeds=tuple(range(10, 16)),
)
