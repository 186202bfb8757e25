"""GGUF, the file of llama.cpp and of what is built on it: a model and its tokenizer in one. Written with the `gguf` package.

A model with learned positions is a `gpt2` there, one with rotary positions a `gptneox`. Matrices are stored in the precision asked for;
vectors and the position embedding stay float32, as llama.cpp's own converter leaves them. q8_0 and q4_0 are 32 weights with one float16
scale (8.5 and 4.5 bits a weight); rows that are no multiple of 32 are f16, and q4_0 leaves the token embedding and the output in q8_0.
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from andrea.checkpoint import Run
from andrea.data.tokenizer import Tokenizer
from andrea.files import flush, named
from andrea.interop.shape import beside, check_free, check_precision, check_shape, renamed, tensors
from andrea.kernels.layer_norm import EPSILON
from andrea.kernels.rotary import BASE

if TYPE_CHECKING:
    from gguf import GGUFWriter

ARCHITECTURES = {"learned": "gpt2", "rotary": "gptneox"}
MODULES = {
    "token_embed": "token_embd",
    "position_embed": "position_embd",
    "blocks.{}.attn_norm": "blk.{}.attn_norm",
    "blocks.{}.attn.qkv": "blk.{}.attn_qkv",
    "blocks.{}.attn.out": "blk.{}.attn_output",
    "blocks.{}.mlp_norm": "blk.{}.ffn_norm",
    "blocks.{}.mlp.up": "blk.{}.ffn_up",
    "blocks.{}.mlp.down": "blk.{}.ffn_down",
    "final_norm": "output_norm",
    "unembed": "output",
}
PRECISIONS = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0", "q4_0": "MOSTLY_Q4_0"}
PIECES = "gpt-2"  # llama.cpp's name for the pattern of data/tokenizer.py


def export_gguf(run: Run, out: Path, precision: str = "f32") -> None:
    """Write one .gguf file. Raises ValueError for a shape or a tokenizer that llama.cpp does not have.

    llama.cpp opens every text with the separator, as ANDREA does with a prompt; its GELU is the tanh form, computed from a float16 table.
    """
    try:
        import gguf
    except ImportError:
        raise ValueError("writing GGUF needs the gguf package: pip install 'andrea[gguf]'") from None
    c, tokenizer = run.config.model, run.tokenizer
    check_shape(c, activations=("gelu",))
    check_precision(precision, tuple(PRECISIONS))
    check_free(out)
    if not tokenizer.merges:
        kind = "bytes" if tokenizer.kind == "bpe" else tokenizer.kind
        why = "llama.cpp has none that gives the same ids; --to hf can say it, and one made by --tokenizer bpe can go both ways"
        raise ValueError(f"a tokenizer by {kind} cannot be exported: {why}")
    building = beside(out)
    writer = gguf.GGUFWriter(building, ARCHITECTURES[c.positions])
    writer.add_name(run.path.resolve().name)
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.d_model)
    writer.add_feed_forward_length(c.mlp_width)
    writer.add_block_count(c.n_layer)
    writer.add_head_count(c.n_head)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_file_type(gguf.LlamaFileType[PRECISIONS[precision]])
    if c.positions == "rotary":
        writer.add_rope_dimension_count(c.d_head)
        writer.add_rope_freq_base(BASE)
        writer.add_parallel_residual(False)
    add_tokenizer(writer, tokenizer)
    for address, tensor in tensors(run.model):
        add(writer, address, tensor, precision)
        if address == "token_embed.weight" and c.tied and c.positions == "rotary":  # llama.cpp's gptneox has no tied output
            add(writer, "unembed.weight", tensor, precision)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with named(out):
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
        flush(building)
        building.replace(out)
    except BaseException as error:
        with suppress(OSError):
            writer.close()
        building.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is None:  # numpy's: "1000 requested and 7 written"
            raise OSError(f"{out} could not be written whole, as on a full disk: {error}") from None
        raise


def add_tokenizer(writer: "GGUFWriter", tokenizer: Tokenizer) -> None:
    """Pieces, merges and the pattern, so that llama.cpp gives our ids; no text becomes the separator unless it is asked to parse it."""
    from gguf import TokenType

    stored = tokenizer.to_json()["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PIECES)
    writer.add_token_list(list(stored["vocab"]))
    writer.add_token_types([TokenType.NORMAL] * tokenizer.separator + [TokenType.CONTROL])
    writer.add_token_merges([" ".join(pair) for pair in stored["merges"]])
    writer.add_bos_token_id(tokenizer.separator)
    writer.add_eos_token_id(tokenizer.separator)
    writer.add_add_bos_token(True)


def add(writer: "GGUFWriter", address: str, tensor: Tensor, precision: str) -> None:
    from gguf import GGMLQuantizationType, quants

    if tensor.dim() == 1 or address == "position_embed.weight":
        precision = "f32"
    elif precision.startswith("q") and tensor.shape[1] % 32:
        precision = "f16"
    elif precision == "q4_0" and address in ("token_embed.weight", "unembed.weight"):
        precision = "q8_0"
    kind = GGMLQuantizationType[precision.upper()]
    writer.add_tensor(renamed(address, MODULES), quants.quantize(tensor.contiguous().numpy(), kind), raw_dtype=kind)
