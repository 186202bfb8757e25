"""The plain versions that tests and benchmarks share: a tiny configuration, and the same model as Hugging Face's GPT-2."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from andrea.config import ModelConfig
from andrea.model import Transformer

OUTER = {  # our address -> transformers.GPT2LMHeadModel's; both tie the output projection to the token embedding
    "token_embed.weight": "transformer.wte.weight",
    "position_embed.weight": "transformer.wpe.weight",
    "final_norm.gamma": "transformer.ln_f.weight",
    "final_norm.beta": "transformer.ln_f.bias",
    "unembed.weight": "lm_head.weight",
}
INNER = {  # blocks.i. -> transformer.h.i.
    "attn_norm.gamma": "ln_1.weight",
    "attn_norm.beta": "ln_1.bias",
    "attn.qkv.weight": "attn.c_attn.weight",
    "attn.qkv.bias": "attn.c_attn.bias",
    "attn.out.weight": "attn.c_proj.weight",
    "attn.out.bias": "attn.c_proj.bias",
    "mlp_norm.gamma": "ln_2.weight",
    "mlp_norm.beta": "ln_2.bias",
    "mlp.up.weight": "mlp.c_fc.weight",
    "mlp.up.bias": "mlp.c_fc.bias",
    "mlp.down.weight": "mlp.c_proj.weight",
    "mlp.down.bias": "mlp.c_proj.bias",
}
TRANSPOSED = {"attn.qkv.weight", "attn.out.weight", "mlp.up.weight", "mlp.down.weight"}  # GPT-2's Conv1D stores (in, out)


def tiny(**changes: Any) -> ModelConfig:
    """2 layers, 2 heads, width 32, context 16, vocabulary 61, with changes."""
    return ModelConfig(**{"vocab_size": 61, "context": 16, "n_layer": 2, "n_head": 2, "d_model": 32, **changes})


def split(address: str) -> tuple[str, str]:
    """'blocks.3.attn.out.bias' -> ('3', 'attn.out.bias'); ('', address) outside the blocks."""
    if not address.startswith("blocks."):
        return "", address
    _, layer, inner = address.split(".", 2)
    return layer, inner


def hf_name(address: str) -> str:
    layer, inner = split(address)
    return f"transformer.h.{layer}.{INNER[inner]}" if layer else OUTER[address]


def our_name(name: str) -> str:
    """The way back. KeyError for a name GPT-2 does not have."""
    if not name.startswith("transformer.h."):
        return {theirs: ours for ours, theirs in OUTER.items()}[name]
    layer, inner = name.removeprefix("transformer.h.").split(".", 1)
    return f"blocks.{layer}." + {theirs: ours for ours, theirs in INNER.items()}[inner]


def as_hf(address: str, tensor: Tensor) -> Tensor:
    """A weight, or its gradient, laid out as Hugging Face lays it out; its own inverse."""
    return tensor.T if split(address)[1] in TRANSPOSED else tensor


def hf_gpt2(config: ModelConfig, model: Transformer) -> Any:
    """A transformers.GPT2LMHeadModel with a copy of the model's weights and dtype, in evaluation mode.

    Without biases theirs are 0. Asserts that the configuration is one GPT-2 can hold.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    assert (config.norm, config.residual) == ("pre", True) and config.activation in ("gelu", "relu")
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context,
            n_embd=config.d_model,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_inner=config.mlp_width,
            activation_function={"gelu": "gelu_new", "relu": "relu"}[config.activation],
            layer_norm_epsilon=1e-5,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            tie_word_embeddings=config.tied,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="eager",
        )
    ).to(model.token_embed.weight.dtype)
    ours = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            address = our_name(name)
            assert address in ours or (address.endswith(".bias") and not config.bias), f"{name} has no counterpart"
            parameter.copy_(as_hf(address, ours[address]) if address in ours else torch.zeros_like(parameter))
    return theirs.eval()


@torch.no_grad()
def randomise(model: Transformer, seed: int = 0) -> Transformer:
    """The model with every parameter random, biases and norms too, so that a forgotten one shows. Gamma is near 1, a bias near 0.

    Matrices have a standard deviation of 1 / sqrt(D): scores are then near 1 and attention is far from uniform.
    """
    generator = torch.Generator().manual_seed(seed)
    for address, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(noise / model.config.d_model**0.5 if parameter.ndim == 2 else 0.3 * noise + address.endswith("gamma"))
    return model


def random_ids(config: ModelConfig, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(config.vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def worst(ours: Tensor, theirs: Tensor) -> float:
    """max|ours - theirs| / max|theirs|."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


class Rereading:
    """A decoder without a cache: every call reads all ids of a slot in one pass of the model."""

    batch_invariant = True

    def __init__(self, model: Transformer, slots: int):
        self.model, self.config, self.slots = model.eval(), model.config, slots
        self.ids: list[list[int]] = [[] for _ in range(slots)]

    @torch.inference_mode()
    def extend(self, slot: int, ids: Sequence[int], start: int) -> np.ndarray:
        self.ids[slot][start:] = ids
        return self.model(torch.tensor([self.ids[slot]]))[0, -1].numpy()

    def step(self, slots: Sequence[int], ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        return np.stack([self.extend(slot, [id], start) for slot, id, start in zip(slots, ids, positions, strict=True)])

    def copy(self, source: int, target: int, length: int) -> None:
        self.ids[target] = self.ids[source][:length]
