"""How high a learning rate a model stands with norms before, after, and without: the share of runs that diverge, and of NaN."""

from typing import Any

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, grow
from andrea.config import override

RATES = (2e-3, 8e-3, 3.2e-2, 0.128, 0.512)


def measure(task: Task, arm: Arm) -> Figures:
    """One run at each learning rate: `diverged` and `nan` are the shares of them, `loss` the lowest, `largest` the gradient's norm."""
    runs: list[dict[str, Any]] = [
        grow(Task(task.claim, task.arm, task.seed, override(task.config, f"optim.lr={lr}")), arm.build) for lr in RATES
    ]
    return {
        "loss": min(run["loss"] for run in runs),
        "losses": [[lr, run["loss"]] for lr, run in zip(RATES, runs, strict=True)],
        "shares": {key: sum(run[key] for run in runs) / len(runs) for key in ("diverged", "nan")},
        "largest": [max(run["grad_norms"], default=0.0) for run in runs],
        "parameters": runs[0]["parameters"],
        "unigram": runs[0]["unigram"],
    }


def share(f: Figures, arm: str, key: str = "diverged") -> float:
    return f[arm]["shares"][key]


def mean_loss(f: Figures, arm: str) -> float:
    """Over all the rates, diverged runs as the unigram entropy."""
    return sum(loss for _, loss in f[arm]["losses"]) / len(RATES)


CLAIM = Claim(
    name="norm-stability",
    section="3.2b",
    sentence="LayerNorm keeps activations in a stable range; without it small instabilities snowball into NaN gradients.",
    means="Over five learning rates from 2e-3 to 0.5, without norms a larger share of runs ends in numbers that are none (NaN) than with "
    "the norm before each sublayer; and a larger share diverges, NaN or above the unigram entropy.",
    published="Nets without norms do train when they are initialised for it (Fixup: Zhang 2019; SkipInit: De & Smith 2020; He 2023), and "
    "norms let them stand higher rates. That an untamed rate ends in NaN is common experience; how often is a matter of precision, "
    "clipping and optimizer: AdamW's steps have a bounded size, which turns explosions into wandering.",
    sources=("Zhang et al. 2019, arXiv:1901.09321", "De & Smith 2020, arXiv:2002.10444", "He et al. 2023, arXiv:2302.10322"),
    controls="6 layers, D 64, 120 steps of 1,024 tokens, float32, AdamW, warm-up 10 steps, no clipping but in the arm that says so. "
    "Equal tensors and batches for a seed. Each run of the record is the five rates of one arm and seed.",
    arms={
        "pre-norm": Arm(),
        "post-norm": Arm(("model.norm=post",)),
        "no norm": Arm(("model.norm=none",)),
        "no norm, clipped": Arm(("model.norm=none", "optim.grad_clip=1")),
    },
    base=override(SMALL, "train.steps=120", "optim.grad_clip=0"),
    measure=measure,
    questions=(
        Question(
            "runs that end in NaN, pre-norm less no norm", lambda f: share(f, "pre-norm", "nan") - share(f, "no norm", "nan"), 0.05, "share"
        ),
        Question("runs that diverge, pre-norm less no norm", lambda f: share(f, "pre-norm") - share(f, "no norm"), 0.05, "share"),
        Question(
            "mean loss over the rates, pre-norm less no norm",
            lambda f: mean_loss(f, "pre-norm") - mean_loss(f, "no norm"),
            0.05,
            needed=False,
        ),
        Question(
            "runs that diverge, pre-norm less post-norm",
            lambda f: share(f, "pre-norm") - share(f, "post-norm"),
            0.05,
            "share",
            needed=False,
        ),
        Question(
            "clipped: runs that diverge, pre-norm less no norm",
            lambda f: share(f, "pre-norm") - share(f, "no norm, clipped"),
            0.05,
            "share",
            needed=False,
        ),
    ),
    seeds=tuple(range(9)),
)
