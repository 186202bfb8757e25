"""`andrea flow`: gradients, writes and use of the layers, over depth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.show import Table, print_json, terminal

if TYPE_CHECKING:
    from andrea.checkpoint import Run

Option, Argument = typer.Option, typer.Argument


def flow(
    run: Annotated[Path, Argument(help="A run folder, or its name under runs/.", show_default=False)],
    *,
    tokens: Annotated[int, Option(help="Of the run's validation text to measure on; more tells more surely which blocks matter.")] = 16_384,
    steps: Annotated[int, Option(help="Steps that the tuned lens learns, for one of the three depths.")] = 100,
    growth: Annotated[bool, Option("--growth", help="How it grew: what the run noted at each evaluation.")] = False,
    png: Annotated[Path | None, Option(help="Draw it, x = layer; with --growth, x = step.", show_default=False)] = None,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1; not mps, which lacks the float64 that this takes.")] = "cpu",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Show over the layers: gradients, how much each writes beside what it reads, what the loss would be without it.

    How much of the depth is in use is said three ways, because no one number says it. Gradients are of one pass over held-out text,
    before any clipping; updates are what the weights changed by between the two newest saves, where there are two.

    Examples:

      andrea flow runs/first

      andrea flow runs/first --png flow.png

      andrea flow runs/first --growth --png growth.png

      andrea flow runs/first --tokens 65536 --json
    """
    from andrea.checkpoint import load
    from andrea.insight.picture import draw_flow, draw_growth
    from andrea.machine import choose_device
    from andrea.training.telemetry import grown

    if steps < 1 or tokens < 1:
        raise ValueError(f"--steps {steps} and --tokens {tokens} must be at least 1")
    found = grown(run) if growth else report(load(run, at, choose_device(device).value), tokens, steps)
    if png:
        (draw_growth if growth else draw_flow)(found, png)
    if as_json:
        print_json(found)
    elif png:
        print(f"wrote {png}")
    else:
        terminal([growth_table(found)] if growth else tables(found))


def report(opened: "Run", tokens: int, steps: int) -> dict[str, Any]:
    """What --json prints. `write` is a mean over tokens, without the first position of each window, which has its own."""
    from dataclasses import asdict

    from andrea.insight.flow import block_influence, effective_depth, gradients, held_out, lens_entropies, skip_costs, writes
    from andrea.insight.lens import both_lenses, tune
    from andrea.insight.trace import stations, sublayers, trace

    model = opened.model
    c = model.config
    rows = held_out(opened.open_data().val, c.context, max(4, tokens // c.context)).to(next(model.parameters()).device)
    few = rows[: max(1, 2048 // c.context), :-1]  # for what does not need many
    seen = trace(model, few, stations(c.n_layer) + sublayers(c.n_layer))
    wrote, first = writes(seen), writes(seen, slice(0, 1))
    slopes, influence, entropies = gradients(model, few), block_influence(seen), lens_entropies(seen)
    costs = skip_costs(model, rows) if c.residual else None
    learned, measured = rows[:, :-1].tensor_split(2)
    logit_kl, tuned_kl = both_lenses(model, tune(model, learned, steps), measured[:8])
    changes, between = updated(opened)
    by = dict(zip(stations(c.n_layer)[1:], sublayers(c.n_layer), strict=True))
    depth = effective_depth(costs, tuned_kl, wrote)
    return {
        "run": str(opened.path),
        "step": opened.step,
        "tokens": rows[:, 1:].numel(),
        "stations": [
            {
                "station": name,
                "sublayer": by.get(name),
                "gradient": slopes.activations[name],
                "write": asdict(wrote[by[name]]) if name in by else None,
                "first_position": asdict(first[by[name]]) if name in by else None,
                "lens_entropy_bits": entropies[name],
                "held_out_kl": {"logit": logit_kl[k].item(), "tuned": tuned_kl[k].item()},
            }
            for k, name in enumerate(stations(c.n_layer))
        ],
        "blocks": [
            {
                "block": i,
                "influence": influence[i],
                "cost": None if costs is None else costs[i]._asdict(),
                "relative_gradient": norm_of(slopes.weights, i) / whole(opened, i),
                "relative_update": changes.get(f"blocks.{i}"),
                "gradients": {n.removeprefix(f"blocks.{i}."): g for n, g in slopes.weights.items() if n.startswith(f"blocks.{i}.")},
                "relative_gradients": {
                    n.removeprefix(f"blocks.{i}."): g for n, g in slopes.relative.items() if n.startswith(f"blocks.{i}.")
                },
            }
            for i in range(c.n_layer)
        ],
        "gradient_ratio": slopes.ratio,
        "updates_between": between,
        "effective_depth": depth._asdict(),
        "n_layer": c.n_layer,
    }


def norm_of(values: dict[str, float], block: int) -> float:
    """Of all matrices of a block together."""
    return sum(value**2 for name, value in values.items() if name.startswith(f"blocks.{block}.")) ** 0.5


def whole(opened: "Run", block: int) -> float:
    return norm_of({name: p.norm().item() for name, p in opened.model.named_parameters()}, block)


def updated(opened: "Run") -> tuple[dict[str, float | None], list[int] | None]:
    """What each block's weights changed by, |W' - W| / |W|, between the two newest checkpoints, and their steps; nothing for only one."""
    import torch

    from andrea.checkpoint import STEP, load_tensors
    from andrea.insight.flow import updates

    folders = [folder for folder in (opened.path / "checkpoints").glob("step-*") if (folder / "manifest.json").exists()]
    steps = sorted(int(found[1]) for folder in folders if (found := STEP.fullmatch(folder.name)))[-2:]
    if len(steps) < 2:
        return {}, None
    saves = [load_tensors(opened.path / "checkpoints" / f"step-{step}" / "model.safetensors") for step in steps]
    names = [f"blocks.{i}" for i in range(opened.model.config.n_layer)]
    flat = lambda save, block: torch.cat([w.flatten() for name, w in save.items() if name.startswith(f"{block}.")])
    before, after = ({name: flat(save, name) for name in names} for save in saves)
    return updates(before, after), steps


def growth_table(found: dict[str, Any]) -> Table:
    from andrea.insight.flow import kind_of

    form = lambda value, how: "not defined" if value is None else format(value, how)
    rows = []
    for seen in found["observed"]:
        uniform = dict(zip(found["scores"], seen["uniform"], strict=False))  # none where the context holds no two copies
        kinds = [kind_of(dict(zip(found["scores"], head, strict=True)), uniform) for block in seen["heads"] for head in block]
        bits, wrote, slopes = seen["entropies"], seen["writes"], seen["gradients"]
        through = slopes[0] / slopes[-1] if slopes[-1] else None
        lens = (f"{bits[0]:.2f}", f"{bits[len(bits) // 2]:.2f}", f"{bits[-1]:.2f}")
        rows.append((seen["step"], form(through, ".3g"), form(wrote[0], ".3f"), form(wrote[-1], ".3f"), *lens, *map(kinds.count, GROWN)))
    columns = (">step", ">gradient", ">writes", ">last", ">lens", ">halfway", ">end", *(f">{name}" for name in GROWN))
    note = (
        "gradient: what reaches the embedding over what reaches the last layer. writes: |added| / |stream| of the first and the last "
        "sublayer. lens: its entropy, bits, at the embedding, halfway, at the end. previous, induction: heads of that kind. One text from "
        "the validation split; --json has every layer and head, --png draws them."
    )
    return Table(f"{found['run']}: as it grew", columns, rows, note)


GROWN = ("previous", "induction")


def tables(found: dict[str, Any]) -> list[Table]:
    undefined = "not defined"
    form = lambda value, how: undefined if value is None else format(value, how)
    measures = (("relative", ".3f"), ("cosine", "+.3f"), ("kept", "+.3f"), ("norm", ".2f"))
    rows = []
    for s in found["stations"]:
        part = [form(s["write"][key], how) if s["write"] else "" for key, how in measures]
        kl = s["held_out_kl"]
        rows.append(
            (s["station"], f"{s['gradient']:.3g}", *part, f"{s['lens_entropy_bits']:.2f}", f"{kl['logit']:.3f}", f"{kl['tuned']:.3f}")
        )
    blocks = []
    for b in found["blocks"]:
        cost = undefined if b["cost"] is None else f"{b['cost']['mean']:+.4f} ({b['cost']['low']:+.4f} to {b['cost']['high']:+.4f})"
        blocks.append((b["block"], f"{b['influence']:.3f}", cost, f"{b['relative_gradient']:.3g}", form(b["relative_update"], ".3g")))
    depth, between = found["effective_depth"], found["updates_between"]
    L = found["n_layer"]
    three = [
        ("blocks that cost more than 0.01 nats when left out", form(depth["used"], "d"), f"of {L}"),
        ("block after which the tuned lens is within 0.1 nats of the answer", depth["settled"], f"of {L}"),
        ("centre of mass of what is written, by block, counted from 1", form(depth["centre"], ".2f"), f"even: {(L + 1) / 2:.2f}"),
    ]
    change = f" Updates: from step {between[0]:,} to {between[1]:,}." if between else ""
    heads = ("stream at", ">|dLoss/dh|", ">added / stream", ">cosine", ">kept", ">|h|", ">lens, bits", ">KL logit lens", ">KL tuned")
    return [
        Table(
            f"{found['run']}: along the stream", heads, rows, "Lengths without each window's first position. KL in nats, on held-out text."
        ),
        Table(
            "Block by block",
            (">block", ">influence", ">loss without it, nats (95 %)", ">|dLoss/dW| / |W|", ">update / |W|"),
            blocks,
            f"Gradient, first block over last: {found['gradient_ratio']:.3g}. {found['tokens']:,} tokens of held-out text.{change}",
        ),
        Table("How deep it is, three ways", ("", ">", ""), three),
    ]
