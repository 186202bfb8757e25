"""At initialisation: does LayerNorm keep activations in a stable range, and do they leave it without?"""

import math
from dataclasses import replace

import torch

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.untrained import decades, fresh, random_tokens, stream
from andrea.config import ModelConfig, RunConfig, TrainConfig

DEPTHS = (12, 48)
NUDGE = 1e-6  # of the embedding's length


def measure(task: Task, arm: Arm) -> Figures:
    """By depth: decades between the largest and the smallest block output (root mean square), and how a small disturbance of the embedding
    has grown at the end, beside the stream's own growth."""
    found = {}
    for L in DEPTHS:
        c = replace(task.config.model, n_layer=L)
        model, ids = fresh(c, task.seed, arm.build), random_tokens(c, 2, task.seed)
        with torch.no_grad():
            states = stream(model, ids)
            x = states[0] + NUDGE * states[0].norm(dim=-1, keepdim=True) / math.sqrt(c.d_model) * torch.randn_like(states[0])
            first = x - states[0]
            for block in model.blocks:
                x = block(x)
            sizes = [state.square().mean().sqrt().item() for state in states]
            grown = decades(((x - states[-1]).norm() / states[-1].norm()).item(), (first.norm() / states[0].norm()).item())
        found[str(L)] = {"range": decades(max(sizes[1:]), min(sizes[1:])), "disturbance": grown, "sizes": sizes[:: L // 12]}
    return found


CLAIM = Claim(
    name="layer-norm",
    section="3.2a",
    sentence="LayerNorm keeps activations in a stable range.",
    means="In an untrained stack of 48 pre-norm blocks whose matrices keep the size of what they read (Xavier), no block's output is "
    "100 times larger than another's; in the same stack without norms some are.",
    published="In pre-norm the stream's square grows linearly with depth, between (1 + l/2) and (1 + 3l/2) times (Xiong 2020, Lemma "
    "2): the norm bounds what sublayers read, not the stream. Networks without norms train where the initialisation is chosen for it "
    "(Zhang 2019).",
    sources=(
        "Ba, Kiros, Hinton 2016, arXiv:1607.06450",
        "Xiong et al. 2020, arXiv:2002.04745",
        "Zhang, Dauphin, Ma 2019, arXiv:1901.09321",
    ),
    controls="D 64, random tokens, 2 sequences of 16, float64, equal matrices in both arms. GPT-2's small initialisation stands "
    "beside: there the sublayers without norms write next to nothing.",
    arms={
        "pre-norm, xavier": Arm(),
        "no norm, xavier": Arm(("model.norm=none",)),
        "post-norm, xavier": Arm(("model.norm=post",)),
        "pre-norm, gpt2": Arm(("model.init=gpt2",)),
        "no norm, gpt2": Arm(("model.norm=none", "model.init=gpt2")),
    },
    base=RunConfig(
        ModelConfig(vocab_size=257, context=16, n_layer=48, n_head=4, d_model=64, init="xavier"),
        train=TrainConfig(batch_tokens=32, steps=1),
    ),
    measure=measure,
    questions=(
        Question("48 layers with norm: decades of range, beyond 2", lambda f: f["pre-norm, xavier"]["48"]["range"] - 2, 0.1, "decades"),
        Question("48 layers without norm: decades of range, short of 2", lambda f: 2 - f["no norm, xavier"]["48"]["range"], 0.1, "decades"),
        Question(
            "48 layers, GPT-2's initialisation, without norm: decades of range, short of 2",
            lambda f: 2 - f["no norm, gpt2"]["48"]["range"],
            0.1,
            "decades",
            needed=False,
        ),
        Question(
            "48 layers: growth of a small disturbance, with norm minus without",
            lambda f: f["pre-norm, xavier"]["48"]["disturbance"] - f["no norm, xavier"]["48"]["disturbance"],
            0.1,
            "decades",
            needed=False,
        ),
    ),
    seeds=tuple(range(30, 38)),
)
