"""With residual connections: does the gradient keep its size through hundreds of layers?"""

from dataclasses import replace

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.untrained import decades, fresh, gradient_sizes, loss_of, random_tokens, stream, token_cosine
from andrea.config import ModelConfig, RunConfig, TrainConfig

DEPTHS = (12, 64, 256)


def measure(task: Task, arm: Arm) -> Figures:
    """By depth: the decades between the gradient at the first block's output, and at the embedding, and that at the last block's output."""
    found = {}
    for L in DEPTHS:
        c = replace(task.config.model, n_layer=L)
        model, ids = fresh(c, task.seed, arm.build), random_tokens(c, 2, task.seed)
        states = stream(model, ids)
        sizes = gradient_sizes(loss_of(model, states[-1], ids), states)
        first, embedding = decades(sizes[1], sizes[-1]), decades(sizes[0], sizes[-1])
        found[str(L)] = {"first": first, "embedding": embedding, "cosine": token_cosine(states[-1])}
    return found


def farthest(figures: Figures, layers: int = 256) -> float:
    """Decades from equal, at the worse of the two places, beyond the one that is called useful."""
    found = figures[str(layers)]
    return max(abs(found["first"]), abs(found["embedding"])) - 1


CLAIM = Claim(
    name="residual-depth",
    section="2.1b",
    sentence="With residual connections the gradient's size stays useful through hundreds of layers.",
    means="In the document's block (pre-norm, GPT-2 initialisation) of 256 layers, the gradient at the first block's output and at the "
    "embedding is within a factor of 10 of that at the last block's output.",
    published="Gradients in pre-norm change little with depth (Xiong 2020); those of early layers are the larger ones (Shleifer 2021). "
    "The scale of initialisation decides: without norms, matrices that keep the size of what they read double the stream in every "
    "layer.",
    sources=("Xiong et al. 2020, arXiv:2002.04745", "Shleifer, Weston, Ott 2021, arXiv:2110.09456"),
    controls="D 64, random tokens, 2 sequences of 16, float64. Arms without norms and with Xavier's initialisation stand beside, not "
    "in the claim.",
    arms={
        "pre-norm": Arm(),
        "no norm": Arm(("model.norm=none",)),
        "post-norm": Arm(("model.norm=post",)),
        "pre-norm, xavier": Arm(("model.init=xavier",)),
        "no norm, xavier": Arm(("model.norm=none", "model.init=xavier")),
    },
    base=RunConfig(ModelConfig(vocab_size=257, context=16, n_layer=256, n_head=4, d_model=64), train=TrainConfig(batch_tokens=32, steps=1)),
    measure=measure,
    questions=(
        Question("256 layers, pre-norm: decades from equal, beyond 1", lambda f: farthest(f["pre-norm"]), 0.1, "decades"),
        Question("256 layers, no norm: decades from equal, beyond 1", lambda f: farthest(f["no norm"]), 0.1, "decades", needed=False),
        Question("256 layers, post-norm: decades from equal, beyond 1", lambda f: farthest(f["post-norm"]), 0.1, "decades", needed=False),
        Question(
            "256 layers, pre-norm, Xavier: decades from equal, beyond 1",
            lambda f: farthest(f["pre-norm, xavier"]),
            0.1,
            "decades",
            needed=False,
        ),
        Question(
            "64 layers, no norm, Xavier: decades from equal, beyond 1",
            lambda f: farthest(f["no norm, xavier"], 64),
            0.1,
            "decades",
            needed=False,
        ),
    ),
    seeds=tuple(range(10, 18)),
)
