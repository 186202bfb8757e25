"""At initialisation: where gradients are large in post-norm and pre-norm, and how that of the last block depends on depth."""

import math
from dataclasses import replace
from typing import Any

import torch

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.untrained import blocks, decades, fresh, gradient_sizes, loss_of, random_tokens, slope, stream
from andrea.config import ModelConfig, RunConfig, TrainConfig
from andrea.model import Transformer

DEPTHS = (8, 12, 32, 64)  # of the arms that are built as in the proof; the others have 12


@torch.no_grad()
def as_in_the_proof(c: ModelConfig) -> Transformer:
    """Xiong et al. 2020, section 3: queries and keys 0, so that attention is a mean; inputs N(0, 1); the output projection N(0, 1/D).

    Matrices by Xavier, ReLU, M = D and one head come from the configuration.
    """
    model = Transformer(c)
    for block in blocks(model):
        block.attn.qkv.weight[: 2 * c.d_model].zero_()
    model.token_embed.weight.normal_(0, 1)
    assert model.position_embed is not None
    model.position_embed.weight.zero_()
    model.unembed.weight.normal_(0, 1 / math.sqrt(c.d_model))
    return model


def measure(task: Task, arm: Arm) -> Figures:
    """At 12 layers, by block: log10 of the gradient of W_2, of all matrices and of the stream, and the stream's square over D.

    Over the depths: the last block's W_2 under one token's loss (mean over tokens), and the fitted exponent of L.
    """
    found: dict[str, Any] = {"last": []}
    for L in DEPTHS if arm.build else (12,):
        c = replace(task.config.model, n_layer=L)
        model, ids = fresh(c, task.seed, arm.build), random_tokens(c, 8, task.seed)
        read: list[torch.Tensor] = []
        down = blocks(model)[-1].mlp.down
        hook = down.register_forward_hook(lambda module, given, out, read=read: read.extend((*given, out)))
        states = stream(model, ids)
        hook.remove()
        loss = loss_of(model, states[-1], ids)
        (back,) = torch.autograd.grad(loss, [read[1]], retain_graph=True)
        # of one token: the outer product of what W_2 reads there and what comes back to it, so its norm is the product of theirs
        each = (read[0].norm(dim=-1) * back.norm(dim=-1))[:, :-1] * ids[:, 1:].numel()
        found["last"].append([L, each.mean().item()])
        if L == 12:
            found["stream"] = [decades(g, 1.0) for g in gradient_sizes(loss, states)]
            matrices = [
                torch.autograd.grad(loss, [p for p in block.parameters() if p.ndim == 2], retain_graph=True) for block in blocks(model)
            ]
            found["w2"] = [decades(grads[3].norm().item(), 1.0) for grads in matrices]
            found["block"] = [decades(math.sqrt(sum(g.square().sum().item() for g in grads)), 1.0) for grads in matrices]
            found["square"] = [(state.square().sum(-1).mean() / c.d_model).item() for state in states]
    if arm.build:
        found["exponent"] = slope([math.log(L) for L, _ in found["last"]], [math.log(g) for _, g in found["last"]])
    return found


def outside(squares: list[float]) -> float:
    """How far the stream's square over D is outside (1 + l/2) to (1 + 3l/2) after the worst block, as a share; below 0 it is inside."""
    return max(max((1 + block / 2) / s - 1, s / (1 + 1.5 * block) - 1) for block, s in enumerate(squares) if block)


PROOF = ("model.n_head=1", "model.mlp_ratio=1", "model.tied=false")
CLAIM = Claim(
    name="pre-post-norm-init",
    section="4.2b",
    sentence="In post-norm, gradients explode in early layers.",
    means="In an untrained post-norm stack of 12 layers (ReLU, M = 4 D, Xavier, as in 2017) the first block's matrices get a larger "
    "gradient than the last block's, and the stream's gradient is larger after the first block than after the last.",
    published="The other way round: in post-norm the gradients of the layers near the output are the large ones, in pre-norm those of "
    "the early layers (Xiong 2020; Shleifer 2021). Gradients of the last layer: independent of L in post-norm, as L^-1/2 in pre-norm "
    "(Xiong 2020, Theorem 1). That imbalance is not what makes post-norm hard to train, but how strongly it depends on its residual "
    "branches (Liu 2020).",
    sources=(
        "Xiong et al. 2020, arXiv:2002.04745, Lemma 2 and Theorem 1",
        "Shleifer, Weston, Ott 2021, arXiv:2110.09456",
        "Liu et al. 2020, arXiv:2004.08249",
    ),
    controls="Equal matrices in both arms of a seed; D 128, 8 sequences of 32 random tokens, float64. Gradients are of the mean loss "
    "of one batch; the exponent is of single tokens' losses, as in the theorem. The arms `proof` have the paper's conditions: one "
    "head, W_Q = W_K = 0, M = D, inputs N(0, 1).",
    arms={
        "post": Arm(),
        "pre": Arm(("model.norm=pre",)),
        "post, gpt2": Arm(("model.init=gpt2", "model.activation=gelu")),
        "post, proof": Arm(PROOF, as_in_the_proof),
        "pre, proof": Arm((*PROOF, "model.norm=pre"), as_in_the_proof),
    },
    base=RunConfig(
        ModelConfig(vocab_size=257, context=32, n_head=4, d_model=128, norm="post", activation="relu", init="xavier"),
        train=TrainConfig(batch_tokens=256, steps=1),
    ),
    measure=measure,
    questions=(
        Question(
            "post-norm: gradient of the last block's matrices over the first's",
            lambda f: f["post"]["block"][-1] - f["post"]["block"][0],
            0.1,
            "decades",
        ),
        Question(
            "post-norm: gradient of the stream after the last block over after the first",
            lambda f: f["post"]["stream"][-1] - f["post"]["stream"][1],
            0.1,
            "decades",
        ),
        Question(
            "post-norm, GPT-2's initialisation: last block's matrices over the first's",
            lambda f: f["post, gpt2"]["block"][-1] - f["post, gpt2"]["block"][0],
            0.1,
            "decades",
            needed=False,
        ),
        Question(
            "post-norm, the proof's conditions: last block's W_2 over the first's",
            lambda f: f["post, proof"]["w2"][-1] - f["post, proof"]["w2"][0],
            0.1,
            "decades",
            needed=False,
        ),
        Question(
            "pre-norm: gradient of the last block's matrices over the first's",
            lambda f: f["pre"]["block"][-1] - f["pre"]["block"][0],
            0.1,
            "decades",
            needed=False,
        ),
        Question(
            "pre-norm, the proof's conditions: last block's W_2 over the first's",
            lambda f: f["pre, proof"]["w2"][-1] - f["pre, proof"]["w2"][0],
            0.1,
            "decades",
            needed=False,
        ),
        Question(
            "Theorem 1: post-norm's exponent of L is within 0.1 of 0",
            lambda f: abs(f["post, proof"]["exponent"]) - 0.1,
            0.005,
            "exponent",
            needed=False,
        ),
        Question(
            "Theorem 1: pre-norm's exponent of L is within 0.1 of -1/2",
            lambda f: abs(f["pre, proof"]["exponent"] + 0.5) - 0.1,
            0.005,
            "exponent",
            needed=False,
        ),
        Question(
            "Lemma 2: pre-norm's |h|^2 / D is within its bounds after every block",
            lambda f: outside(f["pre, proof"]["square"]),
            0.005,
            "share of the bound",
            needed=False,
        ),
    ),
    seeds=tuple(range(30, 42)),
)
