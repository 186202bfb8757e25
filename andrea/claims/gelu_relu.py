# mypy: disable-error-code="union-attr"
"""GELU against ReLU at equal parameters, along the way and at the end; and the square of ReLU beside them."""

import torch
import torch.nn.functional as F

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, grow
from andrea.config import ModelConfig
from andrea.model import Transformer

ON_THE_WAY = (75, 150)  # steps, both before the learning rate falls


def relu_squared(c: ModelConfig) -> Transformer:
    """The same model with max(0, x)^2. So et al. 2021, arXiv:2109.08668."""
    model = Transformer(c)
    for block in model.blocks:
        block.mlp.act.function = lambda x: torch.square(F.relu(x))
    return model


def measure(task: Task, arm: Arm) -> Figures:
    return grow(task, arm.build, evaluate_at=ON_THE_WAY)


def gap(f: Figures, a: str, b: str, after: int | None = None) -> float:
    """Loss of arm a minus that of b, after so many steps, or at the end."""
    at = lambda arm: next((loss for step, loss in f[arm]["curve"] if step == after), f[arm]["loss"])
    return at(a) - at(b)


CLAIM = Claim(
    name="gelu-relu",
    section="6.3a",
    sentence="At equal parameter counts GELU reaches lower loss than ReLU.",
    means="With every tensor, batch and step equal but for the activation, each at its best of the learning rates, GELU's validation "
    "loss after 300 steps is below ReLU's.",
    published="Shazeer 2020, table 1 (T5-base, C4, log-perplexity): GELU 1.983 and ReLU 1.997 after 65,536 steps (s.d. 0.005, 4 runs), "
    "but 1.679 and 1.677 after 524,288: the lead is early and goes. ReLU has a negligible effect on convergence (Mirzadeh 2023). Small "
    "fast models of today take ReLU squared.",
    sources=(
        "Shazeer 2020, arXiv:2002.05202, table 1",
        "Mirzadeh et al. 2023, arXiv:2310.04564",
        "So et al. 2021, arXiv:2109.08668",
    ),
    controls="6 layers, D 64, M 256, 300 steps of 1,024 tokens, AdamW; the same tensors and batches for a seed in all arms. Rates tuned "
    "by arm on two other seeds. GELU is the tanh form. The gap is told after 75 and 150 steps too.",
    arms={"gelu": Arm(), "relu": Arm(("model.activation=relu",)), "relu squared": Arm(build=relu_squared)},
    base=SMALL,
    measure=measure,
    questions=(
        Question("GELU against ReLU after 300 steps", lambda f: gap(f, "gelu", "relu"), 0.01),
        Question("GELU against ReLU, on the way after 150 steps", lambda f: gap(f, "gelu", "relu", 150), 0.01, needed=False),
        Question("GELU against ReLU, on the way after 75 steps", lambda f: gap(f, "gelu", "relu", 75), 0.01, needed=False),
        Question("GELU against ReLU squared after 300 steps", lambda f: gap(f, "gelu", "relu squared"), 0.01, needed=False),
    ),
    seeds=tuple(range(10)),
    rates=(0.5, 1.0, 2.0),
    tuning_seeds=(100, 101),
)
