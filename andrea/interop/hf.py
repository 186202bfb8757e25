"""Folders of Hugging Face's transformers: config.json, model.safetensors, tokenizer.json. No library of theirs is used.

A model with learned positions is their GPT2LMHeadModel, one with rotary positions their GPTNeoXForCausalLM; both compute what ours does.
Every name and every difference of the two forms is in the tables below.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from andrea import checkpoint, run_folder
from andrea.accounting import parameters
from andrea.checkpoint import Run, header, write_tensors
from andrea.config import DataConfig, ModelConfig, RunConfig, TrainConfig, override
from andrea.data.tokenizer import MOST, SEPARATOR, BPETokenizer, ByteTokenizer, CharTokenizer, Tokenizer, unspell
from andrea.files import Damaged, field, flush, read_json, shown, write_json
from andrea.interop.shape import beside, check_free, check_precision, check_shape, renamed, tensors
from andrea.kernels.layer_norm import EPSILON
from andrea.kernels.rotary import BASE
from andrea.machine import provenance


@dataclass(frozen=True)
class Kind:
    """One of their models: what it calls our modules, our sizes, and what must be so for it to be ours."""

    model: str
    modules: Mapping[str, str]
    sizes: Mapping[str, str]
    dropouts: tuple[str, ...]
    activation: str
    fixed: Mapping[str, Any]


GPT2 = Kind(
    "GPT2LMHeadModel",
    {
        "token_embed": "transformer.wte",
        "position_embed": "transformer.wpe",
        "blocks.{}.attn_norm": "transformer.h.{}.ln_1",
        "blocks.{}.attn.qkv": "transformer.h.{}.attn.c_attn",
        "blocks.{}.attn.out": "transformer.h.{}.attn.c_proj",
        "blocks.{}.mlp_norm": "transformer.h.{}.ln_2",
        "blocks.{}.mlp.up": "transformer.h.{}.mlp.c_fc",
        "blocks.{}.mlp.down": "transformer.h.{}.mlp.c_proj",
        "final_norm": "transformer.ln_f",
        "unembed": "lm_head",
    },
    {"context": "n_positions", "n_layer": "n_layer", "n_head": "n_head", "d_model": "n_embd", "mlp_width": "n_inner"},
    ("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    "activation_function",
    {
        "layer_norm_epsilon": EPSILON,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
)
GPT_NEOX = Kind(
    "GPTNeoXForCausalLM",
    {
        "token_embed": "gpt_neox.embed_in",
        "blocks.{}.attn_norm": "gpt_neox.layers.{}.input_layernorm",
        "blocks.{}.attn.qkv": "gpt_neox.layers.{}.attention.query_key_value",
        "blocks.{}.attn.out": "gpt_neox.layers.{}.attention.dense",
        "blocks.{}.mlp_norm": "gpt_neox.layers.{}.post_attention_layernorm",
        "blocks.{}.mlp.up": "gpt_neox.layers.{}.mlp.dense_h_to_4h",
        "blocks.{}.mlp.down": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
        "final_norm": "gpt_neox.final_layer_norm",
        "unembed": "embed_out",
    },
    {
        "context": "max_position_embeddings",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "d_model": "hidden_size",
        "mlp_width": "intermediate_size",
    },
    ("attention_dropout", "hidden_dropout"),
    "hidden_act",
    {"layer_norm_eps": EPSILON, "use_parallel_residual": False, "rotary_pct": 1.0, "rotary_emb_base": BASE},
)
KINDS = {"learned": ("gpt2", GPT2), "rotary": ("gpt_neox", GPT_NEOX)}
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}  # ours: theirs; gelu_new is the tanh form, and their "gelu" another function
THEIR_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
OTHER_BPE = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")  # what ours has not
AROUND = re.compile(r"^((_orig_mod|module)\.)*(transformer\.)?")  # what wrappers put before a name, and GPT2Model leaves away
MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # no parameters: older files keep the causal mask


def export_hf(run: Run, out: Path, precision: str = "f32") -> None:
    """Write a folder that AutoModelForCausalLM and AutoTokenizer load without a network. Raises ValueError for a shape they do not have.

    The tokenizer puts the separator before every text, as ANDREA does with a prompt, and no text becomes the separator.
    """
    c = run.config.model
    check_shape(c)
    check_precision(precision, tuple(DTYPES))
    check_free(out)
    _, kind = KINDS[c.positions]
    theirs = {renamed(address, kind.modules): turned(address, t, c).to(DTYPES[precision]) for address, t in tensors(run.model)}
    building = beside(out)
    building.mkdir(parents=True)
    try:
        write_tensors(building / "model.safetensors", theirs, {"format": "pt"})
        write_json(building / "config.json", config_for(c, run.tokenizer.separator, precision))
        for name, content in tokenizer_for(run.tokenizer, c.context).items():
            write_json(building / name, content)
        for path in building.iterdir():
            flush(path)
        building.replace(out)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def config_for(c: ModelConfig, separator: int, precision: str) -> dict[str, Any]:
    """config.json."""
    model_type, kind = KINDS[c.positions]
    return {
        "architectures": [kind.model],
        "model_type": model_type,
        "vocab_size": c.vocab_size,
        **{theirs: getattr(c, ours) for ours, theirs in kind.sizes.items()},
        **dict.fromkeys(kind.dropouts, c.dropout),
        kind.activation: ACTIVATIONS[c.activation],
        **kind.fixed,
        "tie_word_embeddings": c.tied,
        "bos_token_id": separator,
        "eos_token_id": separator,
        "dtype": str(DTYPES[precision]).removeprefix("torch."),
    }


def tokenizer_for(tokenizer: Tokenizer, context: int) -> dict[str, dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json."""
    first, text, second = {"SpecialToken": {"id": SEPARATOR, "type_id": 0}}, *({"Sequence": {"id": s, "type_id": 0}} for s in "AB")
    opened = {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, second],
        "special_tokens": {SEPARATOR: {"id": SEPARATOR, "ids": [tokenizer.separator], "tokens": [SEPARATOR]}},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SEPARATOR,
        "eos_token": SEPARATOR,
        "unk_token": SEPARATOR,  # GPT-2's has it too, and CTranslate2 wants one; bytes make no unknown token
        "split_special_tokens": True,  # or "<|endoftext|>" in somebody's text would be the separator
        "clean_up_tokenization_spaces": False,  # or "hello !" would come back as "hello!"
        "model_max_length": context,
    }
    return {"tokenizer.json": tokenizer.to_json() | {"added_tokens": [], "post_processor": opened}, "tokenizer_config.json": config}


def turned(address: str, t: Tensor, c: ModelConfig) -> Tensor:
    """A tensor as theirs have it. GPT-2's linear layers are (in, out); GPT-NeoX has q, k and v of one head after another.

    For GPT-2 it is its own reverse.
    """
    if c.positions == "learned":
        return t.T if t.dim() == 2 and address.startswith("blocks.") else t
    return t.unflatten(0, (3, c.n_head, -1)).transpose(0, 1).flatten(0, 2) if ".attn.qkv." in address else t


# --- import -------------------------------------------------------------------------------------------------------------------------


def import_hf(folder: Path, out: Path) -> Path:
    """A run folder, without data or training state, from a folder with a GPT-2 of transformers.

    Its tokenizer must be GPT-2's kind. Ids are counted anew, as ours are: bytes, merges, the separator (their end of text). Raises
    ValueError for anything that would make it another model: missing or unknown tensors, settings that we do not have, a pickle.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is not a folder of transformers: it has no config.json")
    stored = read_json(path)
    tokenizer, order = read_tokenizer(folder / "tokenizer.json", field(stored, "eos_token_id", int, path))
    c = read_config(stored, path, tokenizer.vocab_size)
    model = read_weights(folder, c, order)
    with run_folder.unfinished(out):
        tokenizer.save(out / "tokenizer.json")
        state: dict[str, Any] = {"windows": 0, "tokens": 0, "seconds": 0.0, "best_loss": None, "skips": []}
        checkpoint.save(out, 0, model, {}, state, best=True)
        config = RunConfig(c, override(DataConfig(), f"tokenizer={tokenizer.kind}"), train=TrainConfig(batch_tokens=c.context))
        run_folder.write_run(out, config, {"steps": 0}, provenance() | {"imported_from": str(folder.resolve())})
    return out


def read_config(stored: Mapping[str, Any], path: Path, vocab_size: int) -> ModelConfig:
    """The model of their config.json. Raises ValueError, naming the field, for what ours is not."""
    if stored.get("model_type") != "gpt2":
        raise ValueError(
            f"{path} is of a model of type {shown(stored.get('model_type'))}; gpt2 is what can be imported"
            + "; a run with learned positions is exported as one: train it with --set positions=learned"
            * (stored.get("model_type") == "gpt_neox")
        )
    for name, value in GPT2.fixed.items():
        if stored.get(name, value) != value:
            raise ValueError(f"{path} has {name}={shown(stored[name])}; ANDREA's models have {value}")
    sizes = {ours: field(stored, theirs, int, path) for ours, theirs in GPT2.sizes.items() if ours != "mlp_width"}
    wide = stored.get("n_inner")
    drops = [stored.get(name, 0.1) for name in GPT2.dropouts]
    activation = stored.get(GPT2.activation, "gelu_new")
    if activation not in list(THEIR_ACTIVATIONS):
        raise ValueError(f"{path} has {GPT2.activation}={shown(activation)}; ANDREA's models have {' or '.join(THEIR_ACTIVATIONS)}")
    if drops != drops[:1] * len(drops):
        raise ValueError(f"{path} has different dropouts, {', '.join(GPT2.dropouts)}; ANDREA's models have one, so make them equal")
    try:
        return ModelConfig(
            vocab_size=vocab_size,
            **sizes,
            mlp_dim=4 * sizes["d_model"] if wide is None else wide,
            activation=THEIR_ACTIVATIONS[activation],  # type: ignore[arg-type]
            tied=stored.get("tie_word_embeddings", True),
            dropout=drops[0],
        )
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def read_weights(folder: Path, c: ModelConfig, order: list[int]) -> dict[str, Tensor]:
    """Our tensors in float32, the rows of the embeddings in `order`. Raises ValueError unless the files hold exactly the model's."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        pickled = next(iter(sorted(folder.glob("*.bin"))), None)
        why = f"; {pickled.name} is a pickle, which may run any program, so save it anew with save_pretrained" if pickled else ""
        raise ValueError(f"{folder} has no model.safetensors" + why)
    found: dict[str, tuple[Path, str, tuple[int, ...]]] = {}
    for file in files:
        for name, (dtype, shape) in header(file).items():
            plain = AROUND.sub("", name)
            if MASK.fullmatch(plain):
                continue
            if plain in found:
                raise Damaged(f"{folder} has {shown(plain)} twice, as {shown(found[plain][1])} and {shown(name)}")
            if dtype not in ("F32", "F16", "BF16"):
                raise ValueError(f"{file} has {shown(name)} in {dtype}; wanted F32, F16 or BF16")
            found[plain] = file, name, shape
    if c.n_layer > len(found):  # first: a list of a billion layers' tensors does not end
        raise Damaged(f"{folder} has {len(found)} tensors, too few for n_layer={c.n_layer}")
    wanted = {AROUND.sub("", renamed(address, GPT2.modules)): (address, shape) for address, shape in parameters(c)}
    embed, unembed = "wte.weight", "lm_head.weight"
    both = c.tied and embed in found and unembed in found
    if c.tied and embed not in found and unembed in found:
        wanted[unembed] = wanted.pop(embed)
    missing, unknown = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys() - ({unembed} if both else set()))
    if missing or unknown:
        what = f"missing {shown(missing) if missing else 'none'}, unknown {shown(unknown) if unknown else 'none'}"
        raise Damaged(f"{folder} does not fit its config.json: {what}")
    loaded = {file: load_file(file) for file in files}
    model: dict[str, Tensor] = {}
    for name, (address, shape) in wanted.items():
        file, key, has = found[name]
        t = turned(address, loaded[file][key], c)
        if address in ("token_embed.weight", "unembed.weight"):
            if len(has) != 2 or has[0] <= max(order):
                raise Damaged(f"{file} has {name} of {has}; the tokenizer has ids up to {max(order)}")
            t = t[order]
        if t.shape != shape:
            raise Damaged(f"{file} has {name} of {has}, which does not fit config.json")
        model[address] = t.float().contiguous()
    if both and not torch.equal(loaded[found[unembed][0]][found[unembed][1]], loaded[found[embed][0]][found[embed][1]]):
        raise Damaged(f"{folder} says tie_word_embeddings, but {unembed} is not {embed}")
    return model


def read_tokenizer(path: Path, separator: int) -> tuple[Tokenizer, list[int]]:
    """Our tokenizer with the pieces of their tokenizer.json, and for each of our ids theirs. Raises ValueError for one of another kind."""
    if not path.is_file():
        raise ValueError(f"{path} is not there; AutoTokenizer.from_pretrained(...).save_pretrained(...) writes it")
    stored = read_json(path, MOST)
    model = field(stored, "model", dict, path)
    vocab, merges = field(model, "vocab", dict, path), field(model, "merges", list, path)
    level = stored.get("pre_tokenizer") or {}
    by_bytes = isinstance(level, dict) and level.get("type") == "ByteLevel" and not level.get("add_prefix_space")
    other = {name: value for name in OTHER_BPE if (value := model.get(name))} | {n: v for n in ("normalizer",) if (v := stored.get(n))}
    if model.get("type", "BPE") != "BPE" or other or not (by_bytes or (level == {} and not merges)):
        what = f"{shown(model.get('type'))}, {shown(other or level)}"
        raise ValueError(f"{path} is another kind of tokenizer ({what}); wanted GPT-2's: byte-level BPE, nothing normalised")
    try:
        ids = vocab | {token["content"]: token["id"] for token in stored.get("added_tokens") or ()}
        names = {id: name for name, id in ids.items()}
        if (
            separator not in names
            or len(names) != len(ids)
            or {type(id) for id in names} != {int}
            or not 0 <= min(names) <= max(names) < 2**31
        ):
            raise ValueError(f"it has no token {separator}, the eos_token_id, or two with one id, or an id that is none")
        if not by_bytes:
            tokenizer: Tokenizer = CharTokenizer(sorted(ids.keys() - {names[separator]}))
        elif level.get("use_regex", True):
            pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
            tokenizer = BPETokenizer([(unspell(left), unspell(right)) for left, right in pairs])
        else:
            tokenizer = ByteTokenizer()
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    ours = [tokenizer.spell(piece) for piece in tokenizer.pieces[:-1]] + [names[separator]]
    if others := sorted(ids.keys() ^ set(ours), key=str):
        raise ValueError(f"{path} has other tokens than the bytes, what its merges make, and one separator: {shown(others)}")
    return tokenizer, [ids[name] for name in ours]
