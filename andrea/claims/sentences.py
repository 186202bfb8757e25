"""Every sentence of the specification, sections 2 to 8, that claims something, and what shows whether it is so."""

from typing import NamedTuple


class Sentence(NamedTuple):
    """`claims` are names of files here; `command` shows what takes no run: a count, a definition, a source. A sentence that hangs on one
    `question` of its claim has that question's verdict."""

    id: str  # section, and a letter where a section says several things
    text: str
    claims: tuple[str, ...] = ()
    command: str = ""
    question: str = ""


SENTENCES = (
    Sentence(
        "2.1a",
        "A 12-layer stack without residuals loses the gradient long before the embeddings.",
        ("residual-gradient", "residual-training"),
    ),
    Sentence("2.1b", "With residuals its size stays useful through hundreds of layers.", ("residual-depth",)),
    Sentence("2.2", "At init the sublayers' outputs are small: layer N passes its input on nearly unchanged.", ("identity-init",)),
    Sentence("2.3a", "Each block refines, not replaces; the residual stream accumulates.", ("refinement",)),
    Sentence("2.3b", "Layer 1 perhaps adds position, layer 2 syntactic structure, layer 7 semantic relations.", ("layer-roles",)),
    Sentence(
        "3.1",
        "LayerNorm: mean and biased variance over D, for every token by itself; gamma and beta of shape (D,).",
        (),
        "andrea trace --paper",
    ),
    Sentence("3.2a", "LayerNorm keeps activations in a stable range.", ("layer-norm",)),
    Sentence("3.2b", "Without it small instabilities snowball into NaN gradients.", ("norm-stability",)),
    Sentence("3.3", "2 per block, 24 over 12 blocks, one before the output: 25.", (), "andrea count andrea-120m"),
    Sentence(
        "4.2a", "Post-norm trains badly without learning-rate warm-up and careful tuning; pre-norm trains stably.", ("pre-post-norm",)
    ),
    Sentence("4.2b", "In post-norm, gradients explode in early layers.", ("pre-post-norm-init",)),
    Sentence("4.2c", "2017: post-norm. GPT-2, LLaMA: pre-norm.", (), "andrea claims history"),
    Sentence("5.2a", "W_1 and W_2 have about 2.36M weights each, 4.72M per block, 56.6M over 12 blocks.", (), "andrea count andrea-120m"),
    Sentence("5.2b", "The MLPs are about half of all parameters.", ("mlp-share",)),
    Sentence("5.2c", "Two MLPs between each pair of attention sublayers.", (), "andrea count andrea-120m"),
    Sentence("5.3a", "Smaller ratios than 4 lose capacity, larger ones give diminishing returns per parameter.", ("mlp-ratio",)),
    Sentence("5.3b", "Gated MLPs with ratio 8/3 reach comparable capacity at lower cost.", ("swiglu-8-3",)),
    Sentence("5.3c", "4x has held in GPT, BERT, T5, LLaMA.", (), "andrea claims history"),
    Sentence("5.3d", "Gated MLPs with 8/3 are PaLM's and Chinchilla's.", (), "andrea claims history"),
    Sentence("6.2", "Large positive x: about x. Large negative x: about 0. GELU(0) = 0. Some negative input passes.", ("gelu-form",)),
    Sentence("6.3a", "At equal parameter counts GELU reaches lower loss than ReLU.", ("gelu-relu", "gelu-relu-sizes")),
    Sentence(
        "6.3b", "Because ReLU's hard cut interrupts gradients and GELU's smooth curve gives cleaner ones.", ("gelu-relu-why", "gelu-relu")
    ),
    Sentence("6.4", "On modern GPUs tanh is a single instruction.", (), "andrea claims history"),
    Sentence("7.2", "ANDREA-120M: D 768, L 12, M 3072, V 8,449.", (), "andrea count andrea-120m --check"),
    Sentence("7.3", "The block design is two thirds of the parameters, embeddings the rest.", ("parameter-share",)),
    Sentence(
        "7.4a",
        "Early layers hold syntax and position, middle ones word relations and phrases, late ones meaning and facts.",
        ("layer-roles",),
    ),
    Sentence(
        "7.4b",
        "This comes from training on language, not from the architecture.",
        ("layer-roles",),
        question="what blocks add to selectivity, untrained less trained",
    ),
    Sentence("8", "The engine trains stably at the default settings with the default pre-norm block.", ("pre-post-norm", "norm-stability")),
)
