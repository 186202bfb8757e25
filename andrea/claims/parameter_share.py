"""What share of all parameters the blocks are, and how many there are."""

from andrea.accounting import count
from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.presets import preset

ABOUT = 0.05  # a share, or a number relative to the one stated, that is this near is "about" it


def measure(task: Task, arm: Arm) -> Figures:
    n = count(task.config.model)
    wholes = {"distinct": n.total, "tied twice": n.total_counting_tied_twice, "120M": 120_000_000}
    shares = {name: n.trunk / whole for name, whole in wholes.items()}
    return {"total": n.total, "twice": n.total_counting_tied_twice, "trunk": n.trunk, "tokens": n.token_embed, "share": shares}


def share(name: str, whole: str, needed: bool = False) -> Question:
    return Question(name, lambda f: abs(f["ANDREA-120M"]["share"][whole] - 2 / 3) - ABOUT, 0.0, "share", "exact", needed)


def number(name: str, figure: str, stated: float) -> Question:
    return Question(name, lambda f: abs(f["ANDREA-120M"][figure] / stated - 1) - ABOUT, 0.0, "relative", "exact", False)


CLAIM = Claim(
    name="parameter-share",
    section="7.3",
    sentence="The block design is two thirds of the parameters, the embeddings are the rest.",
    means=f"In ANDREA-120M the blocks are within {ABOUT:.0%} of two thirds of the distinct parameters.",
    published="Nothing to compare with: it follows from the configuration.",
    sources=("docs/model.md", "andrea count andrea-120m"),
    controls="Arithmetic: no run, no chance. Checked against the built model by andrea count --check.",
    arms={"ANDREA-120M": Arm()},
    base=preset("andrea-120m"),
    measure=measure,
    questions=(
        share("the blocks, of the distinct parameters: distance from two thirds, beyond 0.05", "distinct", True),
        share("the blocks, counting the tied matrix twice", "tied twice"),
        share("the blocks, of the 120M in the name", "120M"),
        number("about 85M in the trunk", "trunk", 85e6),
        number("about 13M in token embeddings", "tokens", 13e6),
        number("about 120M in all", "total", 120e6),
    ),
    seeds=(0,),
)
