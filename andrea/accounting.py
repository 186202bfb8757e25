"""What a ModelConfig costs: parameters, FLOPs, cache and training memory. Pure functions of the shape, no torch.

L layers, D d_model, H heads, M the MLP's width, V vocabulary, T tokens, N distinct parameters.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from andrea.config import ModelConfig

ACTIVATION_WIDTHS = {"gelu": 2, "relu": 1, "swiglu": 4}  # tensors of width M that the MLP keeps for the backward pass


class Matrix(NamedTuple):
    """One stored parameter, a vector included, at its address in the built model."""

    address: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Count:
    """Distinct parameters: total = token_embed + position_embed + trunk + final_norm + unembed.

    trunk = attention + mlp_total + biases + the norms inside blocks; attention and the MLPs are weights alone.
    """

    total: int
    trunk: int
    token_embed: int
    position_embed: int
    final_norm: int
    unembed: int  # 0 where tied: the matrix is token_embed
    attention: int
    mlp_total: int
    mlp_per_block: int
    biases: int
    layer_norms: int  # how many LayerNorms
    layer_norm_parameters: int  # the final one's included
    total_counting_tied_twice: int
    flops_per_token: int  # of one training step, at the full context

    def shares(self, whole: int) -> dict[str, float]:
        """Fractions of `whole` parameters: the total, or the total counting the tied matrix twice."""
        return {name: getattr(self, name) / whole for name in ("trunk", "attention", "mlp_total")}

    def to_dict(self) -> dict[str, Any]:
        twice = self.shares(self.total_counting_tied_twice)
        return {**asdict(self), "shares": self.shares(self.total), "shares_counting_tied_twice": twice}


class Figure(NamedTuple):
    """A figure of the source document, the exact one, and one sentence on what lies between them."""

    about: str
    document: str
    exact: str
    why: str


def parameters(c: ModelConfig) -> list[Matrix]:
    """Every stored parameter once, in the order of the built model's named_parameters()."""
    tokens, positions = Matrix("token_embed.weight", (c.vocab_size, c.d_model)), Matrix("position_embed.weight", (c.context, c.d_model))
    blocks = [Matrix(f"blocks.{i}.{m.address}", m.shape) for i in range(c.n_layer) for m in block_parameters(c)]
    final = norm("final_norm", c.d_model) if c.norm == "pre" else []
    return [
        tokens,
        *([positions] if c.positions == "learned" else []),
        *blocks,
        *final,
        *([] if c.tied else [Matrix("unembed.weight", tokens.shape)]),
    ]


def block_parameters(c: ModelConfig) -> list[Matrix]:
    """One block's, their addresses counted from the block."""
    D, M, has_norm = c.d_model, c.mlp_width, c.norm != "none"
    attention = [*linear("attn.qkv", D, 3 * D, c.bias), *linear("attn.out", D, D, c.bias)]
    mlp = [*linear("mlp.up", D, M, c.bias), *linear("mlp.down", M, D, c.bias)]
    gate = linear("mlp.gate", D, M, c.bias) if c.activation == "swiglu" else []
    return [*(norm("attn_norm", D) if has_norm else []), *attention, *(norm("mlp_norm", D) if has_norm else []), *mlp, *gate]


def linear(address: str, n_in: int, n_out: int, bias: bool) -> list[Matrix]:
    return [Matrix(f"{address}.weight", (n_out, n_in))] + [Matrix(f"{address}.bias", (n_out,))] * bias


def norm(address: str, width: int) -> list[Matrix]:
    return [Matrix(f"{address}.gamma", (width,)), Matrix(f"{address}.beta", (width,))]


def count(c: ModelConfig) -> Count:
    """The sums, in closed form."""
    L, D, M = c.n_layer, c.d_model, c.mlp_width
    tokens, positions, unembed = c.vocab_size * D, c.context * D * (c.positions == "learned"), 0 if c.tied else c.vocab_size * D
    expansions = 2 if c.activation == "swiglu" else 1  # matrices D -> M
    mlp, biases = (expansions + 1) * D * M, L * (5 * D + expansions * M) * c.bias
    inner_norms, final_norms = 2 * L * (c.norm != "none"), 1 * (c.norm == "pre")
    trunk, norms, final = L * (4 * D * D + mlp) + biases + inner_norms * 2 * D, inner_norms + final_norms, final_norms * 2 * D
    total = tokens + positions + trunk + final + unembed
    weights, vectors = (4 * D * D * L, L * mlp, mlp), (biases, norms, norms * 2 * D)
    flops = 6 * (total - positions) + 6 * L * D * c.context
    return Count(total, trunk, tokens, positions, final, unembed, *weights, *vectors, total + tokens - unembed, flops)


def flops_per_token(c: ModelConfig, context: int | None = None) -> int:
    """FLOPs of one training step per token: 6 (N - positions) + 6 L D T, T = context. Untied, N holds the look-up as well.

    Two for every weight forward and four backward; attention's 12 L D T is halved by the causal mask. Kaplan et al. 2020,
    arXiv:2001.08361, section 2.1; Chowdhery et al. 2022, arXiv:2204.02311, appendix B.
    """
    return count(c).flops_per_token + 6 * c.n_layer * c.d_model * ((context or c.context) - c.context)


def kv_cache_bytes(c: ModelConfig, tokens: int, bytes_per_value: int = 4) -> int:
    """Bytes of the keys and values of `tokens` positions, all sequences together."""
    return 2 * c.n_layer * c.d_model * tokens * bytes_per_value


def training_bytes(c: ModelConfig, batch: int, tokens: int, dtype: Literal["float32", "bfloat16"] = "float32") -> dict[str, int]:
    """Bytes at the peak of one pass over `batch` sequences of `tokens`, uncompiled, by item; `total` is their sum.

    Weights, gradients and AdamW's two moments are float32; bfloat16 is autocast, with one copy of every matrix. Kept per token:
        block      6 D + k M values, k from ACTIVATION_WIDTHS: what qkv reads (D), q k v (3 D), what out and up read (2 D), the MLP's
                   own (k M); in bfloat16 SwiGLU's gate reads a copy of its own (D)
                   always float32: what both norms read (2 D), their mean and 1/std (4), attention's logsumexp (H)
        end        what the final norm (D + 2, float32) and the unembedding (D) read
        logits     3 V float32: log-softmax, its gradient, the logits' gradient
    Left out: token ids, dropout's masks, the allocator's rounding.
    """
    sums, D, half = count(c), c.d_model, dtype == "bfloat16"
    value = 2 if half else 4
    values = 6 * D + ACTIVATION_WIDTHS[c.activation] * c.mlp_width + D * (half and c.activation == "swiglu")
    block = value * values + 4 * ((2 * D + 4) * (c.norm != "none") + c.n_head)
    end = value * D + 4 * (D + 2) * (c.norm == "pre")
    items = {
        "weights": 4 * sums.total,
        "gradients": 4 * sums.total,
        "adamw_moments": 8 * sums.total,
        "bfloat16_copies": 2 * (sums.attention + sums.mlp_total + sums.token_embed) * half,
        "activations": batch * tokens * (c.n_layer * block + end),
        "logits": batch * tokens * 3 * 4 * c.vocab_size,
    }
    return {**items, "total": sum(items.values())}


def claims_of_the_document(c: ModelConfig) -> list[Figure]:
    """What the source document says of ANDREA-120M beside what is so; empty for a model of any other shape."""
    if parameters(c) != parameters(ModelConfig()):
        return []
    n, D = count(c), c.d_model
    wholes = n.total, n.total_counting_tied_twice, 120e6
    trunk, mlp = (" / ".join(f"{100 * part / whole:.1f} %" for whole in wholes) for part in (n.trunk, n.mlp_total))
    of = "of the distinct parameters / counting the tied matrix twice / of 120M"
    return [
        Figure("one MLP matrix", "about 2.36M", f"{D * c.mlp_width:,}", "The same, rounded."),
        Figure("one MLP", "4.72M", f"{n.mlp_per_block:,}", "The same, rounded; biases are left out."),
        Figure("all MLPs", "56.6M", f"{n.mlp_total:,}", "The same, rounded; biases are left out."),
        Figure("all MLPs, share", "about half", mlp, f"Shares {of}: it depends on the whole."),
        Figure("MLPs", "two between attention sublayers", "one", "A block is one attention and one MLP, in turn."),
        Figure("LayerNorms", "25", f"{n.layer_norms}", "The same: two in each block, one before the output."),
        Figure("trunk", "85M", f"{n.trunk:,}", "The same, rounded, with biases and the norms inside blocks."),
        Figure("token embeddings", "about 13M", f"{n.token_embed:,}", "Tied is one matrix, stored once; the document counts it twice."),
        Figure("all", "about 120M", f"{n.total:,}", f"The name is the family's; with the tied matrix twice it is {wholes[1]:,}."),
        Figure("trunk, share", "two thirds", trunk, f"Shares {of}: embeddings are less than a third of each."),
        Figure("SwiGLU at 8/3", "lower cost", f"{3 * D * (8 * D // 3):,}", "Three matrices, so as many weights as two at ratio 4."),
    ]
