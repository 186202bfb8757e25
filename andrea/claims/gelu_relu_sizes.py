"""GELU against ReLU at three widths: whether the lead that GELU has early grows or goes with size."""

from collections.abc import Callable

from andrea.claims.claim import Arm, Claim, Figures, Question
from andrea.claims.gelu_relu import gap
from andrea.claims.grow import SMALL, grow
from andrea.config import override

WIDTHS = (32, 64, 128)
GELU = {d: f"gelu, D {d}" for d in WIDTHS}
RELU = {d: f"relu, D {d}" for d in WIDTHS}
SMALLEST, _, LARGEST = WIDTHS


def at(width: int, after: int | None = None) -> Callable[[Figures], float]:
    """The gap at one width, after so many steps or at the end."""
    return lambda f: gap(f, GELU[width], RELU[width], after)


CLAIM = Claim(
    name="gelu-relu-sizes",
    section="6.3a",
    sentence="At equal parameter counts GELU reaches lower loss than ReLU.",
    means="At each of three widths, which have 75, 300 and 1,190 thousand parameters in their blocks, GELU's validation loss after 150 "
    "steps is below ReLU's, all else equal, each at its best of the learning rates.",
    published="Shazeer 2020, table 1, one size: a lead of 0.014 after 65,536 steps and none after 524,288. Of the size published results "
    "say little; So 2021 finds ReLU squared ahead of both from 35M to 1.9B parameters.",
    sources=("Shazeer 2020, arXiv:2002.05202, table 1", "So et al. 2021, arXiv:2109.08668"),
    controls="6 layers, heads 8 to 32 wide, 150 steps of 1,024 tokens, AdamW; the same tensors and batches for a seed in both arms of a "
    "width. Rates tuned by arm on another seed. The trend is the gap at the largest width less that at the smallest.",
    arms={
        name: Arm((f"model.d_model={d}", f"model.activation={kind}"))
        for kind, names in (("gelu", GELU), ("relu", RELU))
        for d, name in names.items()
    },
    base=override(SMALL, "train.steps=150"),
    measure=lambda task, arm: grow(task, arm.build, evaluate_at=(75,)),
    questions=(
        *(Question(f"D {d}: GELU against ReLU", at(d), 0.01) for d in WIDTHS),
        *(Question(f"D {d}: GELU against ReLU, on the way after 75 steps", at(d, 75), 0.01, needed=False) for d in WIDTHS),
        Question(
            "trend: the gap at the largest width less that at the smallest",
            lambda f: at(LARGEST)(f) - at(SMALLEST)(f),
            0.01,
            needed=False,
        ),
    ),
    seeds=tuple(range(8)),
    rates=(0.5, 1.0, 2.0),
    tuning_seeds=(100,),
)
