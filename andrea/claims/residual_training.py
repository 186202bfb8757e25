"""Training 12 layers with residual connections and without."""

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import SMALL, grow
from andrea.config import override

LEARNT = 0.1  # nats below the unigram entropy: more than the frequency of tokens has been learnt


def measure(task: Task, arm: Arm) -> Figures:
    return grow(task, arm.build, evaluate_at=(50, 100))


def over_unigram(f: Figures, arm: str) -> float:
    """How far the loss is above what counts as learnt; below 0, something has been."""
    return f[arm]["loss"] - (f[arm]["unigram"] - LEARNT)


CLAIM = Claim(
    name="residual-training",
    section="2.1a",
    sentence="A 12-layer stack without residuals loses the gradient long before the embeddings.",
    means="Trained the same way, each at its best of the learning rates, 12 layers without residual connections end above the same with "
    "them; and learn nothing, which is to say no more than how frequent each token is.",
    published="Without skips and MLPs attention alone collapses to rank 1 with depth (Dong 2021), and the gradients of queries and keys "
    "vanish (Noci 2022). It is not a law: deep stacks without skips train when they are initialised for it, in about five times the "
    "steps (He 2023).",
    sources=("Dong et al. 2021, arXiv:2103.03404", "Noci et al. 2022, arXiv:2206.03126", "He et al. 2023, arXiv:2302.10322"),
    controls="D 64, 4 heads, pre-norm, GPT-2 initialisation, AdamW, 200 steps of 1,024 tokens; equal tensors and batches for a seed; "
    "rates tuned by arm on another seed. Positive control: 2 layers without residuals must learn.",
    arms={
        "residual": Arm(),
        "no residual": Arm(("model.residual=false",)),
        "no residual, xavier": Arm(("model.residual=false", "model.init=xavier")),
        "no residual, 2 layers": Arm(("model.residual=false", "model.n_layer=2")),
    },
    base=override(SMALL, "model.n_layer=12", "train.steps=200"),
    measure=measure,
    questions=(
        Question("12 layers: residual against none", lambda f: f["residual"]["loss"] - f["no residual"]["loss"], 0.01),
        Question("12 layers without: what is missing to having learnt", lambda f: -over_unigram(f, "no residual"), 0.0),
        Question("the control, 2 layers without, learns", lambda f: over_unigram(f, "no residual, 2 layers"), 0.0, needed=False),
        Question(
            "12 layers: residual against none with Xavier's initialisation",
            lambda f: f["residual"]["loss"] - f["no residual, xavier"]["loss"],
            0.01,
            needed=False,
        ),
    ),
    seeds=tuple(range(9)),
    rates=(0.5, 1.0, 2.0),
    tuning_seeds=(100,),
)
