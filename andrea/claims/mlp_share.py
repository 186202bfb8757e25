"""What share of all parameters the MLPs are."""

from andrea.accounting import count
from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.presets import preset

ABOUT = 0.05  # a share that is this near is "about" it


def measure(task: Task, arm: Arm) -> Figures:
    n = count(task.config.model)
    wholes = {"distinct": n.total, "tied twice": n.total_counting_tied_twice, "120M": 120_000_000}
    return {"mlp": n.mlp_total, "per_block": n.mlp_per_block, "share": {name: n.mlp_total / whole for name, whole in wholes.items()}}


def question(name: str, whole: str, needed: bool = False) -> Question:
    return Question(name, lambda f: abs(f["ANDREA-120M"]["share"][whole] - 0.5) - ABOUT, 0.0, "share", "exact", needed)


CLAIM = Claim(
    name="mlp-share",
    section="5.2",
    sentence="The MLPs are about half of all parameters.",
    means=f"In ANDREA-120M the weights of the 12 MLPs are within {ABOUT:.0%} of half of the distinct parameters.",
    published="Without embeddings a block has 12 D^2 weights, 8 D^2 of them in the MLP: two thirds of the trunk (Kaplan 2020, table 1).",
    sources=("Kaplan et al. 2020, arXiv:2001.08361, table 1",),
    controls="Arithmetic: no run, no chance. Biases are left out, as the document leaves them out. Checked against the built model by "
    "andrea count --check.",
    arms={"ANDREA-120M": Arm()},
    base=preset("andrea-120m"),
    measure=measure,
    questions=(
        question("of the distinct parameters: distance from a half, beyond 0.05", "distinct", True),
        question("counting the tied matrix twice", "tied twice"),
        question("of the 120M in the name", "120M"),
    ),
    seeds=(0,),
)
