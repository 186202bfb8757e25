"""The model: a decoder-only Transformer in GPT-2's shape. Start at Transformer, then Block.

Shapes: B batch, T tokens, D d_model, H heads, M the MLP's width, V vocabulary. x, (B, T, D), is the residual stream.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from andrea.config import ModelConfig
from andrea.kernels import TORCH, Kernels
from andrea.model.attention import Attention, LayerCache
from andrea.model.dropout import Dropout
from andrea.model.mlp import MLPS


class LayerNorm(nn.Module):
    """gamma * (x - mean) / sqrt(var + epsilon) + beta, over D, for every token by itself."""

    def __init__(self, d_model: int, kernels: Kernels):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.layer_norm = kernels.layer_norm

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(x, self.gamma, self.beta)


class Embedding(nn.Embedding):
    """The vector of each id, (..., D)."""

    def __init__(self, n: int, d_model: int, kernels: Kernels):
        super().__init__(n, d_model)
        self.embedding = kernels.embedding

    def forward(self, ids: Tensor) -> Tensor:
        return self.embedding(ids, self.weight)


class Block(nn.Module):
    """Pre-norm: each sublayer reads the normalised stream and adds what it has to say to the stream itself."""

    def __init__(self, c: ModelConfig, kernels: Kernels):
        super().__init__()
        self.attn_norm = nn.Identity() if c.norm == "none" else LayerNorm(c.d_model, kernels)
        self.attn = Attention(c, kernels)
        self.mlp_norm = nn.Identity() if c.norm == "none" else LayerNorm(c.d_model, kernels)
        self.mlp = MLPS[c.activation](c, kernels)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        x = x + self.attn(self.attn_norm(x), cache)
        return x + self.mlp(self.mlp_norm(x))


class PostNormBlock(Block):
    """The 2017 order: the stream itself is normalised after every addition."""

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        x = self.attn_norm(x + self.attn(x, cache))
        return self.mlp_norm(x + self.mlp(x))


class PlainBlock(Block):
    """No residual: each sublayer replaces the stream."""

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        x = self.attn(self.attn_norm(x), cache)
        return self.mlp(self.mlp_norm(x))


class PlainPostNormBlock(Block):
    """No residual, and what replaces the stream is normalised."""

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        x = self.attn_norm(self.attn(x, cache))
        return self.mlp_norm(self.mlp(x))


BLOCKS = {  # (norm, residual): without norms, before and after are the same place
    ("pre", True): Block,
    ("none", True): Block,
    ("post", True): PostNormBlock,
    ("pre", False): PlainBlock,
    ("none", False): PlainBlock,
    ("post", False): PlainPostNormBlock,
}


class Transformer(nn.Module):
    """Next-token logits from token ids. Which kernels it computes with is passed in; the configuration does not know."""

    def __init__(self, config: ModelConfig, kernels: Kernels = TORCH):
        super().__init__()
        c = self.config = config
        self.token_embed = Embedding(c.vocab_size, c.d_model, kernels)
        self.position_embed = Embedding(c.context, c.d_model, kernels) if c.positions == "learned" else None
        self.drop = Dropout(c.dropout, kernels)
        self.blocks = nn.ModuleList(BLOCKS[c.norm, c.residual](c, kernels) for _ in range(c.n_layer))
        self.final_norm = LayerNorm(c.d_model, kernels) if c.norm == "pre" else nn.Identity()
        self.unembed = nn.Linear(c.d_model, c.vocab_size, bias=False)
        if c.tied:
            self.unembed.weight = self.token_embed.weight
        self.loss = kernels.loss
        initialise(self)

    def forward(self, ids: Tensor, targets: Tensor | None = None, cache: Sequence[LayerCache] | None = None) -> Tensor:
        """Logits (B, T, V) for ids (B, T); or, given targets (B, T), the loss of each in nats, (B, T).

        With a cache (one LayerCache per block) the ids follow what it already holds. Raises ValueError past the context.
        """
        x = self.drop(self.embed(ids, cache))  # (B, T, D)
        for block, kept in zip(self.blocks, cache or (None,) * len(self.blocks), strict=True):
            x = block(x, kept)  # (B, T, D)
        x = self.final_norm(x)  # (B, T, D)
        return self.unembed(x) if targets is None else self.loss(x, self.unembed.weight, targets)  # x @ token_embed.T where tied

    def embed(self, ids: Tensor, cache: Sequence[LayerCache] | None) -> Tensor:
        """What the first block reads, (B, T, D): the vector of each token, and of its position where positions are learned."""
        positions = self.positions(ids, cache)
        return self.token_embed(ids) if self.position_embed is None else self.token_embed(ids) + self.position_embed(positions)

    def positions(self, ids: Tensor, cache: Sequence[LayerCache] | None) -> Tensor:
        start = cache[0].length if cache else 0
        stop = start + ids.shape[1]
        if stop > self.config.context:
            raise ValueError(f"{stop} tokens do not fit the context of {self.config.context}; give fewer, or drop the oldest")
        return torch.arange(start, stop, device=ids.device)


def unfilled(config: ModelConfig, kernels: Kernels = TORCH) -> Transformer:
    """A model whose numbers are whatever stood in memory, for those that a file holds: to draw 100 million takes a second."""
    with Undrawn():
        return Transformer(config, kernels)


class Undrawn(TorchFunctionMode):
    """Tensors stay as they are where random numbers would be drawn into them. The meta device would take a second to import."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn = {"normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_"}
        return (args or list(kwargs.values()))[0] if getattr(function, "__name__", "") in drawn else function(*args, **(kwargs or {}))


@torch.no_grad()
def initialise(model: Transformer) -> None:
    """GPT-2's: matrices and embeddings N(0, 0.02), what writes to the stream 0.02 / sqrt(2 L), biases 0, norms 1 and 0.

    `zero` sets what writes to the stream to 0, so that every block starts as the identity. `xavier`: Glorot & Bengio 2010, eq. 16,
    for every linear layer of the blocks, as the 2017 Transformer had it. Radford et al. 2019, section 2.3, for the scale.
    """
    c = model.config
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    writers = [matrix for block in blocks for matrix in (block.attn.out, block.mlp.down)]
    qkvs = {block.attn.qkv for block in blocks}  # three layers in one matrix
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.bias is not None:
            module.bias.zero_()
        if isinstance(module, nn.Linear) and c.init == "xavier" and module is not model.unembed:
            for part in module.weight.chunk(3 if module in qkvs else 1):
                nn.init.xavier_uniform_(part)
        elif isinstance(module, nn.Linear | nn.Embedding):
            module.weight.normal_(0, 0.02)
    for matrix in writers:
        if c.init == "gpt2":
            matrix.weight.normal_(0, 0.02 / math.sqrt(2 * c.n_layer))
        elif c.init == "zero":
            matrix.weight.zero_()
