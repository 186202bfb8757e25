"""`andrea count`: the parameters of a model, matrix by matrix, and what it costs to run and to train."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from andrea import accounting
from andrea.config import ModelConfig, RunConfig, override, to_dict
from andrea.presets import PRESETS, preset
from andrea.show import Table, number, percent, print_json, size, terminal


def count(
    target: Annotated[str, typer.Argument(help="A preset (andrea-120m), a run folder, or its name under runs/.", show_default=False)],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change the configuration first; may be given several times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Build the model as well and compare every matrix; exit 1 if one differs.")
    ] = False,
) -> None:
    """Count a model's parameters, every matrix by itself, with FLOPs, KV-cache and training memory.

    The sums are exact and count a tied matrix once. For ANDREA-120M the figures of the source document stand beside them, with reasons.

    Examples:

      andrea count andrea-120m

      andrea count andrea-120m --set activation=swiglu --check

      andrea count andrea-1m --set d_model=96 --set mlp_ratio=3 --json

      andrea count runs/first
    """
    c = read(target, changes or ()).model
    differences = disagreements(c) if check else []
    if as_json:
        print_json({**report(c), **({"check": {"agrees": not differences, "differences": differences}} if check else {})})
    else:
        terminal(tables(target, c))
        if check and not differences:
            typer.echo(f"Check: the built model has these {len(accounting.parameters(c))} matrices and no other, address by address.")
    for difference in differences:
        typer.echo(f"Check: {difference}", err=True)
    if differences:
        raise typer.Exit(1)


def read(target: str, changes: Sequence[str]) -> RunConfig:
    """The configuration of a preset or of a run, changed. Raises ValueError for neither, and for what override refuses."""
    if target in PRESETS or not (Path(target).is_dir() or Path("runs", target).is_dir()):
        try:
            chosen = preset(target)
        except ValueError as error:
            raise ValueError(f"no run is called {target}, and {error}") from None
        return override(chosen, *changes)
    from andrea.run_folder import find_run, read_run

    return override(read_run(find_run(target))[0], *changes)


def disagreements(c: ModelConfig) -> list[str]:
    """One line for every address where the built model and the account differ; the model is built without memory."""
    import torch

    from andrea.model import Transformer

    with torch.device("meta"):
        built = {name: tuple(p.shape) for name, p in Transformer(c).named_parameters()}
    counted = {m.address: m.shape for m in accounting.parameters(c)}
    addresses = {**counted, **built}
    return [f"{a}: counted {counted.get(a)}, built {built.get(a)}" for a in addresses if counted.get(a) != built.get(a)]


def report(c: ModelConfig) -> dict[str, Any]:
    """What --json prints: the fields of Count, and everything the tables show; memory is of one sequence of the full context."""
    return {
        **accounting.count(c).to_dict(),
        "model": to_dict(c),
        "matrices": [{"address": m.address, "shape": m.shape, "count": m.size} for m in accounting.parameters(c)],
        "kv_cache_bytes": accounting.kv_cache_bytes(c, c.context),
        "training_bytes": {dtype: accounting.training_bytes(c, 1, c.context, dtype) for dtype in ("float32", "bfloat16")},
        "document": [figure._asdict() for figure in accounting.claims_of_the_document(c)],
    }


def tables(name: str, c: ModelConfig) -> list[Table]:
    """The same for a reader: matrices, sums, costs, memory and, where it speaks of this model, the document."""
    n, L, T = accounting.count(c), c.n_layer, c.context
    inner = {f"blocks.0.{m.address}" for m in accounting.block_parameters(c)}
    distinct = [m for m in accounting.parameters(c) if m.address in inner or not m.address.startswith("blocks.")]
    lines = [(m, L if m.address in inner else 1) for m in distinct]
    matrices = [
        (m.address.replace("blocks.0", "blocks.*"), m.shape, number(m.size) + (f" x {k}" if k > 1 else ""), m.size * k) for m, k in lines
    ]
    sums = [
        ("token embedding" + (", also the output projection" if c.tied else ""), n.token_embed),
        ("position embedding", n.position_embed),
        (f"attention, {L} blocks, weights", n.attention),
        (f"MLP, {L} blocks, weights: {number(n.mlp_per_block)} each", n.mlp_total),
        ("biases", n.biases),
        ("norms inside blocks", n.layer_norm_parameters - n.final_norm),
        ("trunk: these four", n.trunk),
        ("final norm", n.final_norm),
        ("output projection of its own", n.unembed),
        ("total", n.total),
        ("total, counting a tied matrix twice", n.total_counting_tied_twice),
    ]
    rows = [(what, value, percent(value / n.total), percent(value / n.total_counting_tied_twice)) for what, value in sums]
    costs = [
        ("LayerNorms", number(n.layer_norms)),
        (f"FLOPs per token of training, context {T}", number(n.flops_per_token)),
        (
            "KV-cache of one token, float32 / 16-bit",
            f"{size(accounting.kv_cache_bytes(c, 1))} / {size(accounting.kv_cache_bytes(c, 1, 2))}",
        ),
        (f"KV-cache of {T} tokens", f"{size(accounting.kv_cache_bytes(c, T))} / {size(accounting.kv_cache_bytes(c, T, 2))}"),
    ]
    full, half = accounting.training_bytes(c, 1, T), accounting.training_bytes(c, 1, T, "bfloat16")
    memory = [(item.replace("_", " "), size(full[item]), size(half[item])) for item in full]
    document = accounting.claims_of_the_document(c)
    return [
        Table(f"{name}: every matrix", ("address", "shape", ">count", ">in all"), matrices),
        Table("Sums", ("", ">parameters", ">of total", ">of total, tied twice"), rows),
        Table("Costs", ("", ">"), costs),
        Table(f"Training memory, one sequence of {T}, estimated", ("", ">float32", ">bfloat16"), memory),
        *([Table("The source document", ("figure", "document", "exact", "why"), document)] if document else []),
    ]
