"""The document's sentences about who used what, with sources, and where it errs. Widths: the MLP's over the model's."""

from typing import Literal, NamedTuple


class Fact(NamedTuple):
    """One model or paper. `document`: what it says of the matter; `verdict`: whether it is so."""

    document: str
    who: str
    what: str
    source: str
    verdict: Literal["right", "wrong", "in part", "not said"]


NORM = "2017 post-norm; GPT-2 and LLaMA pre-norm"
RATIO = "4x has held in GPT, BERT, T5, LLaMA"
GATED = "gated MLPs with 8/3 are PaLM's and Chinchilla's"
GELU = "GELU in its tanh form, where tanh is a single instruction"

FACTS = (
    Fact(
        NORM, "Transformer, 2017", "LayerNorm(x + Sublayer(x)): post-norm, 6 layers", "Vaswani et al. 2017, arXiv:1706.03762, 3.1", "right"
    ),
    Fact(
        NORM,
        "GPT, 2018",
        "post-norm, 12 layers, rate warmed up over 2,000 updates",
        "Radford et al. 2018, 4.1; the released model's code",
        "not said",
    ),
    Fact(
        NORM,
        "BERT, 2018",
        "post-norm, 12 and 24 layers, warm-up over 10,000 steps",
        "Devlin et al. 2019, arXiv:1810.04805, A.2; the released code",
        "not said",
    ),
    Fact(
        NORM,
        "Baevski and Auli, 2018",
        "norm before attention and MLP, because it trained better",
        "Baevski & Auli 2019, arXiv:1809.10853",
        "not said",
    ),
    Fact(NORM, "GPT-2, 2019", "norm at the input of each sublayer, and one more at the end", "Radford et al. 2019, 2.3", "right"),
    Fact(
        NORM,
        "Wang et al., 2019",
        "pre-norm for encoders of 20 to 30 layers, where post-norm fails",
        "Wang et al. 2019, arXiv:1906.01787",
        "not said",
    ),
    Fact(
        NORM,
        "Nguyen and Salazar, 2019",
        "pre-norm without warm-up, norms by scale alone",
        "Nguyen & Salazar 2019, arXiv:1910.05895",
        "not said",
    ),
    Fact(NORM, "Xiong et al., 2020", "why: the size of gradients at initialisation", "Xiong et al. 2020, arXiv:2002.04745", "not said"),
    Fact(NORM, "LLaMA, 2023", "pre-norm, by RMSNorm and not LayerNorm", "Touvron et al. 2023, arXiv:2302.13971, 2.2", "right"),
    Fact(RATIO, "Transformer, 2017", "2,048 / 512 = 4, ReLU", "Vaswani et al. 2017, arXiv:1706.03762, 3.3", "not said"),
    Fact(
        RATIO,
        "GPT, GPT-3",
        "3,072 / 768 = 4 in the first; d_ff = 4 d_model in GPT-3; GELU",
        "Radford et al. 2018, 4.1; Brown et al. 2020, arXiv:2005.14165, 2.1",
        "right",
    ),
    Fact(RATIO, "BERT, 2018", "4 H in every size, GELU", "Devlin et al. 2019, arXiv:1810.04805, 3", "right"),
    Fact(
        RATIO,
        "T5, 2019 and 2020",
        "4 up to large; 16 in the 3B model, 64 (65,536 / 1,024) in the 11B model; version 1.1 is gated: 8/3 in base, 2.5 in XXL",
        "Raffel et al. 2020, arXiv:1910.10683, 3.7; configurations of t5-v1_1",
        "in part",
    ),
    Fact(
        RATIO,
        "LLaMA, 2023",
        "gated, 2/3 of 4 d: 11,008 / 4,096 = 2.69 in the 7B model",
        "Touvron et al. 2023, arXiv:2302.13971, 2.2",
        "wrong",
    ),
    Fact(
        GATED,
        "Dauphin et al., 2016",
        "gated linear units, in convolutional language models",
        "Dauphin et al. 2017, arXiv:1612.08083",
        "not said",
    ),
    Fact(
        GATED,
        "Shazeer, 2020",
        "gates in the Transformer's MLP, SwiGLU among them; width 3,072 -> 2,048, hence 8/3: equal parameters and operations, not fewer",
        "Shazeer 2020, arXiv:2002.05202",
        "not said",
    ),
    Fact(GATED, "PaLM, 2022", "SwiGLU, but with d_ff = 4 d_model", "Chowdhery et al. 2022, arXiv:2204.02311, 2", "in part"),
    Fact(
        GATED,
        "Chinchilla, 2022",
        "Gopher's architecture: GPT-2's with RMSNorm and relative positions, d_ff = 4 d_model, no gate",
        "Hoffmann et al. 2022, arXiv:2203.15556, 4.1; Rae et al. 2021, arXiv:2112.11446, 3.1 and table 1",
        "wrong",
    ),
    Fact(
        GATED,
        "LLaMA, 2023",
        "SwiGLU with 2/3 of 4 d, and says that this is not PaLM's width",
        "Touvron et al. 2023, arXiv:2302.13971, 2.2",
        "not said",
    ),
    Fact(
        GELU,
        "Hendrycks and Gimpel, 2016",
        "x Phi(x), with the tanh form as an approximation",
        "Hendrycks & Gimpel 2016, arXiv:1606.08415",
        "right",
    ),
    Fact(
        GELU, "GPT, BERT, 2018", "GELU in place of the Transformer's ReLU", "Radford et al. 2018, 4.1; Devlin et al. 2019, A.2", "not said"
    ),
    Fact(GELU, "NVIDIA GPUs from Turing on", "tanh.approx.f32 is one instruction (sm_75)", "PTX ISA, tanh", "right"),
)
