"""At initialisation: how near is a block to passing on what it reads?"""

import torch
import torch.nn.functional as F

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.untrained import fresh, random_tokens, stream, writes
from andrea.config import ModelConfig, RunConfig, TrainConfig

NEAR = 0.95  # cosine of a block's output with its input: 18 degrees, and about a third of the input's length across it


def measure(task: Task, arm: Arm) -> Figures:
    """For each block: |change| / |input|, and the cosine of output and input; then the cosine of the last output with the embedding."""
    c = task.config.model
    model, ids = fresh(c, task.seed, arm.build, torch.float32), random_tokens(c, 4, task.seed)
    with torch.no_grad():
        states = stream(model, ids)
    changes, cosines = zip(*writes(states), strict=True)
    end_to_end = F.cosine_similarity(states[0], states[-1], dim=-1).mean().item()
    return {"change": changes, "cosine": cosines, "worst": min(cosines), "mean": sum(cosines) / len(cosines), "end_to_end": end_to_end}


SMALL = ("model.d_model=128", "model.n_layer=4", "model.n_head=4")
MIDDLE = ("model.d_model=384", "model.n_layer=6")
CLAIM = Claim(
    name="identity-init",
    section="2.2",
    sentence="At init the sublayers' outputs are small, so layer N passes its input on nearly unchanged.",
    means="In an untrained ANDREA-120M with GPT-2's initialisation (0.02, and 0.02 / sqrt(2 L) for what writes to the stream) every "
    f"block's output has a cosine of {NEAR} or more with its input.",
    published="GPT-2 scales the matrices that write to the stream by 1 / sqrt(2 L) (Radford 2019, 2.3), so that the stream does not "
    "grow with depth. The embeddings are drawn with 0.02, and a norm raises what a sublayer reads to size 1: the first blocks write "
    "more than the stream holds. A block that begins as the identity needs its last matrix, or a gain, at 0 (Goyal 2017, Zhang 2019, "
    "Bachlechner 2020); here init=zero.",
    sources=(
        "Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
        "Goyal et al. 2017, arXiv:1706.02677, 5.1",
        "Zhang, Dauphin, Ma 2019, arXiv:1901.09321",
        "Bachlechner et al. 2020, arXiv:2003.04887",
    ),
    controls="Shapes of the family, a vocabulary of 257 (it plays no part before the logits), 4 sequences of 32 random tokens. Three "
    "sizes.",
    arms={
        "120m": Arm(),
        "120m, zero": Arm(("model.init=zero",)),
        "120m, xavier": Arm(("model.init=xavier",)),
        "12m": Arm(MIDDLE),
        "1m": Arm(SMALL),
    },
    base=RunConfig(ModelConfig(vocab_size=257, context=32), train=TrainConfig(batch_tokens=128, steps=1)),
    measure=measure,
    questions=(
        Question("ANDREA-120M: the block that changes most", lambda f: NEAR - f["120m"]["worst"], 0.005, "cosine"),
        Question("ANDREA-120M: the mean of its blocks", lambda f: NEAR - f["120m"]["mean"], 0.005, "cosine", needed=False),
        Question("ANDREA-120M: its last block", lambda f: NEAR - f["120m"]["cosine"][-1], 0.005, "cosine", needed=False),
        Question("ANDREA-12M: the block that changes most", lambda f: NEAR - f["12m"]["worst"], 0.005, "cosine", needed=False),
        Question("andrea-1m: the block that changes most", lambda f: NEAR - f["1m"]["worst"], 0.005, "cosine", needed=False),
        Question(
            "ANDREA-120M, Xavier: the block that changes most", lambda f: NEAR - f["120m, xavier"]["worst"], 0.005, "cosine", needed=False
        ),
        Question(
            "ANDREA-120M, init=zero: the block that changes most",
            lambda f: NEAR - round(f["120m, zero"]["worst"], 6),
            0,
            "cosine",
            "exact",
            False,
        ),
    ),
    seeds=tuple(range(10, 16)),
)
