"""The MLP's ratio from 1 to 8 at equal parameters, the width adjusted; and at equal width, where more is also bigger."""

from dataclasses import replace
from typing import Any

from andrea.accounting import count
from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, grow
from andrea.config import ModelConfig, override

HEAD = 8  # width of every head
BASE = override(SMALL, "model.n_head=8")
TARGET = count(BASE.model).trunk


def matched(d_model: int) -> ModelConfig:
    """The width given, and the MLP that brings the blocks nearest to as many parameters as ratio 4 has at width 64."""
    at = lambda m: replace(BASE.model, d_model=d_model, n_head=d_model // HEAD, mlp_dim=m)
    least = count(at(1)).trunk
    each = count(at(2)).trunk - least
    return at(1 + round((TARGET - least) / each))


def changes(d_model: int) -> tuple[str, ...]:
    c = matched(d_model)
    return f"model.d_model={d_model}", f"model.n_head={c.n_head}", f"model.mlp_dim={c.mlp_dim}"


def measure(task: Task, arm: Arm) -> Figures:
    c = task.config.model
    found: dict[str, Any] = grow(task)
    return {**found, "ratio": c.mlp_width / c.d_model, "residue": count(c).trunk / TARGET - 1, "blocks": count(c).trunk}


WIDTHS = (88, 80, 72, 64, 56, 48)
NAMES = {d: f"ratio {matched(d).mlp_width / d:.1f}" for d in WIDTHS}  # 1.1 1.8 2.7 4.0 5.8 8.6
SMALLEST, LITTLE, LESS, FOUR, MORE, LARGEST = NAMES.values()


def loss(f: Figures, name: str) -> float:
    return f[name]["loss"]


def per_parameter(f: Figures, a: str, b: str) -> float:
    """Nats that the larger saves for every 100,000 parameters more."""
    return (loss(f, a) - loss(f, b)) / (f[b]["blocks"] - f[a]["blocks"]) * 1e5


CLAIM = Claim(
    name="mlp-ratio",
    section="5.3a",
    sentence="Smaller ratios than 4 lose capacity, larger ones give diminishing returns per parameter.",
    means="With the blocks' parameters equal and the width adjusted, ratio 4 ends below a ratio near 1 (smaller ones lose) and below one "
    "near 8 (larger ones do not pay); and at equal width, going from 4 to 8 saves less loss per parameter than from 1 to 4.",
    published="Loss 'depends very weakly on the shape parameters n_layer, n_heads, and d_ff' at equal N, and varies 'only a few percent' "
    "over a wide range (Kaplan 2020, section 3.1, figure 5): 4 is a convention inside a flat valley, not a peak.",
    sources=("Kaplan et al. 2020, arXiv:2001.08361, section 3.1 and figure 5",),
    controls="6 layers, heads 8 wide, widths 88 to 48; the MLP's width is chosen so that all parameters of the blocks, biases and norms "
    "too, are equal within 0.1 % (the residue is in every run). Embeddings, which are not counted, follow the width. 300 steps of 1,024 "
    "tokens, AdamW, rates tuned by arm on another seed. The arms of width 64 with ratio 1 and 8 have fewer and more parameters: "
    "confounded, and said so.",
    arms={
        FOUR: Arm(changes(64)),
        SMALLEST: Arm(changes(88)),
        LARGEST: Arm(changes(48)),
        LITTLE: Arm(changes(80)),
        MORE: Arm(changes(56)),
        LESS: Arm(changes(72)),
        "width 64, ratio 1": Arm(("model.mlp_ratio=1",)),
        "width 64, ratio 8": Arm(("model.mlp_ratio=8",)),
    },
    base=BASE,
    measure=measure,
    questions=(
        Question(f"{FOUR} against {SMALLEST}, at equal parameters", lambda f: loss(f, FOUR) - loss(f, SMALLEST), 0.01),
        Question(f"{FOUR} against {LARGEST}, at equal parameters", lambda f: loss(f, FOUR) - loss(f, LARGEST), 0.01),
        Question(
            "at width 64, what 4 to 8 saves per parameter less what 1 to 4 saves",
            lambda f: per_parameter(f, FOUR, "width 64, ratio 8") - per_parameter(f, "width 64, ratio 1", FOUR),
            0.01,
            "nats per token and 100,000 parameters",
        ),
        Question(f"{FOUR} against {LITTLE}, at equal parameters", lambda f: loss(f, FOUR) - loss(f, LITTLE), 0.01, needed=False),
        Question(f"{FOUR} against {LESS}, at equal parameters", lambda f: loss(f, FOUR) - loss(f, LESS), 0.01, needed=False),
        Question(f"{FOUR} against {MORE}, at equal parameters", lambda f: loss(f, FOUR) - loss(f, MORE), 0.01, needed=False),
    ),
    seeds=tuple(range(5)),
    rates=(0.5, 1.0, 2.0),
    tuning_seeds=(100,),
)
