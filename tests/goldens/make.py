"""Goldens of another implementation: a small model's activations, lens and attribution as TransformerLens has them.

    pip install torch "transformer_lens<4" safetensors numpy
    python tests/goldens/make.py

writes transformer_lens.safetensors beside this file: the weights as ours are named, and under `golden.` what TransformerLens 3.9.0 made of
them. tests/test_insight.py compares; the suite does not need TransformerLens.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

from andrea.config import ModelConfig
from andrea.model import Transformer

SHAPE = {"vocab_size": 31, "context": 12, "n_layer": 2, "n_head": 2, "d_model": 16}


def hooked(weights: dict[str, torch.Tensor], V: int, T: int, L: int, H: int, D: int) -> HookedTransformer:
    """Their model with our weights: the name map. Their matrices are ours transposed, theirs of attention one for each head."""
    sizes = {"n_layers": L, "d_model": D, "n_ctx": T, "d_head": D // H, "n_heads": H, "d_vocab": V}
    config = HookedTransformerConfig(**sizes, act_fn="gelu_new", normalization_type="LN", eps=1e-5, device="cpu")
    model = HookedTransformer(config, move_to_device=False)
    named = {
        "embed.W_E": weights["token_embed.weight"],
        "pos_embed.W_pos": weights["position_embed.weight"],
        "ln_final.w": weights["final_norm.gamma"],
        "ln_final.b": weights["final_norm.beta"],
        "unembed.W_U": weights["token_embed.weight"].T,
        "unembed.b_U": torch.zeros(V),
    }
    for i in range(L):
        ours = theirs = f"blocks.{i}."
        qkv, bias = weights[ours + "attn.qkv.weight"].view(3, H, D // H, D), weights[ours + "attn.qkv.bias"].view(3, H, D // H)
        for n, name in enumerate("QKV"):
            named[f"{theirs}attn.W_{name}"], named[f"{theirs}attn.b_{name}"] = qkv[n].transpose(1, 2), bias[n]
        named[theirs + "attn.W_O"] = weights[ours + "attn.out.weight"].view(D, H, D // H).permute(1, 2, 0)
        named[theirs + "attn.b_O"] = weights[ours + "attn.out.bias"]
        for n, norm in ((1, "attn_norm"), (2, "mlp_norm")):
            named[f"{theirs}ln{n}.w"], named[f"{theirs}ln{n}.b"] = weights[f"{ours}{norm}.gamma"], weights[f"{ours}{norm}.beta"]
        for name, layer in (("in", "up"), ("out", "down")):
            named[f"{theirs}mlp.W_{name}"], named[f"{theirs}mlp.b_{name}"] = (
                weights[f"{ours}mlp.{layer}.weight"].T,
                weights[f"{ours}mlp.{layer}.bias"],
            )
    missing = model.load_state_dict({name: t.contiguous() for name, t in named.items()}, strict=False).missing_keys
    assert not [name for name in missing if not name.endswith(("mask", "IGNORE"))], missing
    return model.eval()


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    ours = Transformer(ModelConfig(**SHAPE))
    for name, p in ours.named_parameters():  # nothing stays 0 or 1, so that nothing can be left out
        p.copy_(0.3 * torch.randn(p.shape) + ("gamma" in name))
    weights = {name: p.detach().clone() for name, p in ours.named_parameters()}
    ids = torch.randint(SHAPE["vocab_size"], (1, SHAPE["context"]))
    theirs = hooked(weights, *SHAPE.values())
    logits, cache = theirs.run_with_cache(ids)
    golden = {"ids": ids, "logits": logits, "embed": cache["blocks.0.hook_resid_pre"]}
    for i in range(SHAPE["n_layer"]):
        at = f"blocks.{i}."
        golden |= {
            f"blocks.{i}.mid": cache[at + "hook_resid_mid"],
            f"blocks.{i}": cache[at + "hook_resid_post"],
            f"blocks.{i}.attn": cache[at + "hook_attn_out"],
            f"blocks.{i}.mlp": cache[at + "hook_mlp_out"],
            f"blocks.{i}.mlp.act": cache[at + "mlp.hook_post"],
            f"blocks.{i}.attn.pattern": cache[at + "attn.hook_pattern"],
            f"blocks.{i}.attn.attend": cache[at + "attn.hook_z"].transpose(1, 2),
        }
    stream = cache.accumulated_resid(incl_mid=True)  # (2 L + 1, 1, T, D)
    golden["lens"] = torch.stack([theirs.unembed(theirs.ln_final(state)) for state in stream])
    kept = {"center_writing_weights": False, "center_unembed": False, "fold_value_biases": False}
    theirs.load_and_process_state_dict(theirs.state_dict(), fold_ln=True, **kept)  # their attribution wants gamma in the unembedding
    _, folded = theirs.run_with_cache(ids)
    answer = logits[0, -1].argmax()
    parts, names = folded.decompose_resid(return_labels=True)
    heads, labels = folded.stack_head_results(return_labels=True)
    golden["answer"] = answer[None]
    golden["attribution"] = folded.logit_attrs(parts, answer[None, None].expand(ids.shape))[:, 0, -1]
    golden["attribution_of_heads"] = folded.logit_attrs(heads, answer[None, None].expand(ids.shape))[:, 0, -1]
    assert names[2:] == [f"{i}_{kind}_out" for i in range(SHAPE["n_layer"]) for kind in ("attn", "mlp")], names
    assert labels[:2] == ["L0H0", "L0H1"], labels
    save_file(
        weights | {f"golden.{name}": t.detach().clone().contiguous() for name, t in golden.items()},
        Path(__file__).with_name("transformer_lens.safetensors"),
    )


if __name__ == "__main__":
    main()
