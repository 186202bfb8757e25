"""What GELU's tanh form gives, and how far it is from x Phi(x)."""

from collections.abc import Callable

import torch

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.config import ModelConfig, RunConfig, TrainConfig
from andrea.kernels.gelu import gelu, reference

STATED = {1.0: 0.8411920, 3.0: 2.9963626, -2.0: -0.0454023}  # the specification's, seven decimals


def measure(task: Task, arm: Arm) -> Figures:
    """The tanh form as the engine computes it, in float64, beside x Phi(x) by the error function."""
    x = torch.linspace(-10, 10, 200_001, dtype=torch.float64)
    tanh, exact = gelu(x), 0.5 * x * (1 + torch.erf(x / 2**0.5))
    error = (tanh - exact).abs()
    return {
        "stated": max(abs(gelu(torch.tensor(at, dtype=torch.float64)).item() - value) for at, value in STATED.items()),
        "zero": gelu(torch.zeros(1)).item(),
        "above": (gelu(x[x > 5]) - x[x > 5]).abs().max().item(),
        "below": gelu(x[x < -5]).abs().max().item(),
        "passes": gelu(torch.tensor(-0.5, dtype=torch.float64)).item(),
        "error": error.max().item(),
        "error_at": abs(x[error.argmax()].item()),
        "falls_until": x[tanh.argmin()].item(),
        "least": tanh.min().item(),
        "forms_differ": (gelu(x) - reference(x)).abs().max().item(),
    }


def exact(name: str, value: Callable[[Figures], float], unit: str = "", needed: bool = True) -> Question:
    return Question(name, lambda f: value(f["tanh form"]), 0.0, unit, "exact", needed)


CLAIM = Claim(
    name="gelu-form",
    section="6.2",
    sentence="Large positive x: about x. Large negative x: about 0. GELU(0) = 0 exactly. Some negative input passes, weighted by Phi.",
    means="The tanh form gives the stated values to seven decimals, 0 at 0, x within 1e-5 above 5, 0 within 1e-5 below -5, and "
    "something below 0 at -0.5.",
    published="The tanh form is one of two approximations in the paper; its largest error is below 5e-4. GELU is not monotone: it "
    "falls until about -0.75.",
    sources=("Hendrycks & Gimpel 2016, arXiv:1606.08415",),
    controls="float64, 200,001 points from -10 to 10; no chance in it.",
    arms={"tanh form": Arm()},
    base=RunConfig(ModelConfig(context=16), train=TrainConfig(batch_tokens=16, steps=1)),
    measure=measure,
    questions=(
        exact("GELU(1), GELU(3), GELU(-2) as stated, to seven decimals", lambda f: f["stated"] - 5e-8),
        exact("GELU(0) is 0", lambda f: abs(f["zero"]) - 1e-300),
        exact("above 5: distance from x, beyond 1e-5", lambda f: f["above"] - 1e-5),
        exact("below -5: distance from 0, beyond 1e-5", lambda f: f["below"] - 1e-5),
        exact("at -0.5 something negative passes", lambda f: f["passes"]),
        exact("distance from x Phi(x), beyond 5e-4", lambda f: f["error"] - 5e-4, needed=False),
        exact("it rises everywhere: the distance below 0 until which it falls", lambda f: -f["falls_until"], needed=False),
    ),
    seeds=(0,),
)
