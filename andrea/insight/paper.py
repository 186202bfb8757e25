"""A model that fits on paper: D = 4, H = 2, M = 16, two blocks, three tokens; every number of every step, to be computed again by hand.

All weights have one decimal and are drawn, not learned; what it says means nothing, how it comes to say it is the whole machine.
"""

from typing import Any

import torch
from torch import Tensor

from andrea.config import ModelConfig
from andrea.insight.story import tell
from andrea.insight.trace import Trace, module_at, trace
from andrea.kernels.layer_norm import EPSILON
from andrea.model import Transformer

LETTERS = "abcdefg"  # one id each
TEXT = "cab"
CONFIG = ModelConfig(vocab_size=len(LETTERS), context=4, n_layer=2, n_head=2, d_model=4, mlp_dim=16)


def paper_model() -> Transformer:
    """The model, float64: every weight a multiple of 0.1, gamma around 1."""
    model, generator = Transformer(CONFIG).double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randint(-9, 10, parameter.shape, generator=generator).double()
            small = drawn if parameter.ndim == 2 else (drawn / 3).round()
            parameter.copy_((small + 10 * name.endswith("gamma")) / 10)
    return model


def paper() -> dict[str, Any]:
    """Weights as the formulas use them (x W, so a matrix has a row for each input), steps in order, and the books of the last token.

    A step's values are a list for each token; what is there for each head is a list of those. A score of a later token is None.
    """
    model = paper_model()
    seen = trace(model, [LETTERS.index(letter) for letter in TEXT])
    tied = {"token_embed.weight", "position_embed.weight"}  # looked up by row, not multiplied
    weights = {
        name: (parameter if name in tied or parameter.ndim == 1 else parameter.T).tolist() for name, parameter in model.named_parameters()
    }
    story = tell(seen)
    return {
        "text": TEXT,
        "letters": LETTERS,
        "weights": weights,
        "steps": steps(seen),
        "books": story["books"],
        "balance_error": story["balance_error"],
    }


def steps(seen: Trace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def step(address: str, name: str, formula: str, values: Tensor) -> None:
        numbers = [[None if x == -torch.inf else x for x in row] for row in values.flatten(0, -2).tolist()]
        rows = values.shape[-2]
        shaped = [numbers[i : i + rows] for i in range(0, len(numbers), rows)]
        found.append({"address": address, "step": name, "formula": formula, "values": shaped[0] if values.ndim == 2 else shaped})

    def norm(address: str, x: Tensor) -> None:
        module = module_at(seen.model, address)
        mean, std = x.mean(-1, keepdim=True), torch.sqrt(x.var(-1, keepdim=True, correction=0) + EPSILON)
        step(address, "mean", "mean(x)", mean)
        step(address, "std", "sqrt(var(x) + 0.00001)", std)
        step(address, "normalised", "(x - mean) / std", (x - mean) / std)
        step(address, "scaled", "gamma * normalised", (x - mean) / std * module.gamma.detach())
        step(address, "out", "scaled + beta", seen[address][0])

    step("embed", "token", "row of token_embed", seen["token_embed"][0])
    step("embed", "position", "row of position_embed", seen["position_embed"])
    step("embed", "x", "token + position", seen["embed"][0])
    x = seen["embed"][0]
    for i in range(CONFIG.n_layer):
        attn, mlp, mid = f"blocks.{i}.attn", f"blocks.{i}.mlp", seen[f"blocks.{i}.mid"][0]
        norm(f"{attn}_norm", x)
        q, k = (seen[f"{attn}.{name}"][0] for name in "qk")  # (H, T, K)
        for n, name in enumerate("qkv"):
            step(attn, name, f"columns {4 * n} to {4 * n + 3} of out W_qkv + b_qkv, two for each head", seen[f"{attn}.{name}"][0])
        scores = (q @ k.mT / CONFIG.d_head**0.5).masked_fill(torch.ones(q.shape[1], q.shape[1]).triu(1).bool(), -torch.inf)
        step(attn, "scores", "q . k / sqrt(2), of the token itself and those before it", scores)
        step(attn, "pattern", "exp(score) / sum of exp(score)", seen[f"{attn}.pattern"][0])
        step(attn, "attend", "sum of pattern * v", seen[f"{attn}.attend"][0])
        step(attn, "heads", "attend times the head's two rows of W_out", seen[f"{attn}.heads"][0])
        step(attn, "write", "both heads + b_out", seen[attn][0])
        step(f"blocks.{i}.mid", "x", "x + write", mid)
        norm(f"{mlp}_norm", mid)
        step(mlp, "up", "out W_up + b_up", seen[f"{mlp}.up"][0])
        step(mlp, "act", "GELU(up)", seen[f"{mlp}.act"][0])
        step(mlp, "write", "act W_down + b_down", seen[mlp][0])
        x = seen[f"blocks.{i}"][0]
        step(f"blocks.{i}", "x", "x + write", x)
    norm("final_norm", x)
    step("unembed", "logits", "out . row of token_embed, for each letter", seen.logits[0])
    step("unembed", "probabilities", "exp(logit) / sum of exp(logit)", seen.logits[0].softmax(-1))
    return found
