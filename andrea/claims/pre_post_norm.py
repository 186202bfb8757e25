"""Training 12 layers with the norm before and after, with and without warm-up: does post-norm need it more?"""

from typing import Any

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, grow
from andrea.config import override

EQUAL = 1e-3  # the learning rate of the comparison at one rate for all
TUNING = (100,)


def measure(task: Task, arm: Arm) -> Figures:
    """The run at the arm's own rate and, for the verdict's seeds, `equal`: one at the rate that is the same for all arms."""
    found: dict[str, Any] = grow(task, evaluate_at=(50, 100))
    if task.seed not in TUNING:
        same = Task(task.claim, task.arm, task.seed, override(task.config, f"optim.lr={EQUAL}"))
        found["equal"] = grow(same, evaluate_at=(50, 100))
    return found


def own(f: Any) -> float:
    return f["loss"]


def at_one_rate(f: Any) -> float:
    return f["equal"]["loss"]


def interaction(f: Any, loss: Any) -> float:
    """What warm-up does for pre-norm, less what it does for post-norm: below 0 where post-norm gains more by it."""
    saved = lambda norm: loss(f[f"{norm}-norm"]) - loss(f[f"{norm}-norm, warm-up"])
    return saved("pre") - saved("post")


CLAIM = Claim(
    name="pre-post-norm",
    section="4.2a",
    sentence="Post-norm trains badly without learning-rate warm-up and careful tuning; pre-norm trains stably.",
    means="Leaving out the warm-up costs a post-norm model of 12 layers more than a pre-norm one, at each arm's best learning rate "
    "(careful tuning) and at one rate for all; and without warm-up, at one rate, pre-norm ends lower.",
    published="On IWSLT (6 + 6 layers, Adam) post-norm without warm-up has 8.45 BLEU where it has about 34 with it, and pre-norm does "
    "without (Xiong 2020). RAdam trains post-norm without warm-up, and a small fixed rate does so slowly. Post-norm is better than "
    "pre-norm up to about 6 layers and fails from about 10 on (Takase 2022). The cause is not the gradients' imbalance but what each "
    "branch's share of the output amplifies (Liu 2020).",
    sources=("Xiong et al. 2020, arXiv:2002.04745", "Liu et al. 2020, arXiv:2004.08249", "Takase et al. 2022, arXiv:2206.00330"),
    controls="12 layers, D 64, 4 heads, 200 steps of 1,024 tokens, GPT-2 initialisation, AdamW (Muon makes every step equally large, and "
    "hides what is asked), gradients clipped at 1, WSD with decay over the last 40 %; warm-up is 30 steps or none. A final norm stands "
    "only in pre-norm. Equal tensors and equal data for a seed in all arms. The rates are tuned by arm on another seed.",
    arms={
        "pre-norm, warm-up": Arm(("optim.warmup=0.15",)),
        "pre-norm": Arm(("optim.warmup=0",)),
        "post-norm, warm-up": Arm(("model.norm=post", "optim.warmup=0.15")),
        "post-norm": Arm(("model.norm=post", "optim.warmup=0")),
    },
    base=override(SMALL, "model.n_layer=12", "train.steps=200", "optim.lr=1e-3"),
    measure=measure,
    questions=(
        Question("warm-up saves post-norm more, at each arm's best rate", lambda f: interaction(f, own), 0.01),
        Question(f"warm-up saves post-norm more, at rate {EQUAL:g}", lambda f: interaction(f, at_one_rate), 0.01),
        Question(
            f"pre-norm against post-norm, no warm-up, at rate {EQUAL:g}",
            lambda f: at_one_rate(f["pre-norm"]) - at_one_rate(f["post-norm"]),
            0.01,
        ),
        Question(
            "pre-norm against post-norm, both at their best with warm-up",
            lambda f: own(f["pre-norm, warm-up"]) - own(f["post-norm, warm-up"]),
            0.01,
            needed=False,
        ),
        Question(
            "pre-norm with warm-up against without, at its best rates",
            lambda f: own(f["pre-norm, warm-up"]) - own(f["pre-norm"]),
            0.01,
            needed=False,
        ),
    ),
    seeds=tuple(range(5)),
    rates=(0.5, 1.0, 2.0),
    tuning_seeds=TUNING,
)
