"""The reason that is given for GELU: are its gradients cleaner, do ReLU's units die, and does the kink or the interruption matter?"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, corpus, grown
from andrea.claims.untrained import blocks
from andrea.config import ModelConfig, RunConfig
from andrea.data.sampler import Sampler
from andrea.insight.flow import held_out
from andrea.model import Transformer

BATCHES = 16  # whose gradients are compared
STILL = 0.01  # of a slope: a unit whose slope is smaller at every token learns nothing


def leaky(c: ModelConfig) -> Transformer:
    """A kink as hard as ReLU's that interrupts no gradient: the slope below 0 is 0.1."""
    model = Transformer(c)
    for block in blocks(model):
        block.mlp.act.function = lambda x: F.leaky_relu(x, 0.1)
    return model


def measure(task: Task, arm: Arm) -> Figures:
    found, model = grown(task.config, task.seed, arm.build, evaluate_at=(75, 150))
    text = corpus(task.config.data, task.config.model.vocab_size)
    rows = held_out(text.data.val, task.config.model.context, 64)[:, :-1]
    found.update(units(model, rows))
    found["noise"] = noise(model, task.config, Sampler(text.data.train, task.config.model.context, 10**6 + task.seed))
    return found


def units(model: Transformer, rows: Tensor) -> dict[str, float]:
    """`dead`: the share of hidden units whose slope is below STILL at every token; `cut`: of all units and tokens, where it is exactly "
    "0."""
    slopes: list[Tensor] = []

    def see(module: Any, given: Any, out: Tensor) -> None:
        x = given[0].detach().requires_grad_()
        with torch.enable_grad():
            slopes.append(torch.autograd.grad(module.function(x).sum(), x)[0].flatten(0, 1))

    hooks = [block.mlp.act.register_forward_hook(see) for block in blocks(model)]
    with torch.no_grad():
        model(rows)
    for hook in hooks:
        hook.remove()
    every = torch.cat(slopes, 1).abs()  # (tokens, all units)
    return {"dead": (every.amax(0) < STILL).float().mean().item(), "cut": (every == 0).float().mean().item()}


def noise(model: Transformer, config: RunConfig, sampler: Sampler) -> float:
    """log10 of the variance of a batch's gradient over the square of its mean, for the blocks' matrices; both without bias."""
    matrices = [p for block in blocks(model) for p in block.parameters() if p.ndim == 2]
    grads = []
    for i in range(BATCHES):
        rows = torch.from_numpy(sampler.batch(i * config.rows, config.rows))
        found = torch.autograd.grad(model(rows[:, :-1], rows[:, 1:]).mean(), matrices)
        grads.append(torch.cat([g.flatten() for g in found]).double())
    each = torch.stack(grads)
    variance = each.var(0).sum().item()
    square = max(each.mean(0).square().sum().item() - variance / BATCHES, 1e-3 * variance)
    return math.log10(variance / square)


CLAIM = Claim(
    name="gelu-relu-why",
    section="6.3b",
    sentence="Because ReLU's hard cut at zero interrupts gradients and GELU's smooth curve gives cleaner ones.",
    means="After the same training GELU's model has fewer dead units and less noise in its gradients than ReLU's; and if the "
    "interruption is the reason, leaky ReLU, which has the kink and no interruption, ends below ReLU too.",
    published="The reason is often repeated and seldom tested. Hendrycks & Gimpel 2016 argue from the curve; So et al. 2021 and Mirzadeh "
    "et al. 2023 find activations with ReLU's cut as good. That a ReLU's slope is 0 for about half of its input is arithmetic.",
    sources=(
        "Hendrycks & Gimpel 2016, arXiv:1606.08415",
        "So et al. 2021, arXiv:2109.08668",
        "Mirzadeh et al. 2023, arXiv:2310.04564",
    ),
    controls="The models of gelu-relu at one learning rate for all; the same tensors and batches for a seed. Noise: the variance of the "
    "gradient over 16 batches of 1,024 tokens of training text, by the square of its mean. A unit is dead whose slope is below 0.01 at "
    "all of 4,096 tokens of validation text.",
    arms={"gelu": Arm(), "relu": Arm(("model.activation=relu",)), "leaky relu": Arm(build=leaky)},
    base=SMALL,
    measure=measure,
    questions=(
        Question("dead units, GELU less ReLU", lambda f: f["gelu"]["dead"] - f["relu"]["dead"], 0.005, "share of units"),
        Question("gradient noise, GELU less ReLU", lambda f: f["gelu"]["noise"] - f["relu"]["noise"], 0.03, "decades"),
        Question("leaky ReLU against ReLU after 300 steps", lambda f: f["leaky relu"]["loss"] - f["relu"]["loss"], 0.01),
        Question("GELU against ReLU after 300 steps", lambda f: f["gelu"]["loss"] - f["relu"]["loss"], 0.01, needed=False),
        Question("GELU against leaky ReLU", lambda f: f["gelu"]["loss"] - f["leaky relu"]["loss"], 0.01, needed=False),
        Question("slopes that are exactly 0, GELU less ReLU", lambda f: f["gelu"]["cut"] - f["relu"]["cut"], 0.01, "share", needed=False),
    ),
    seeds=tuple(range(6)),
)
