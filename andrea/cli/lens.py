"""`andrea lens`: what the model would say at every layer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.show import Table, percent, print_json, terminal

if TYPE_CHECKING:
    from andrea.checkpoint import Run

Option, Argument = typer.Option, typer.Argument
HELD_OUT = 16  # windows of the validation split: half to learn the tuned lens on, half to measure it


def lens(
    run: Annotated[Path, Argument(help="A run folder, or its name under runs/.", show_default=False)],
    text: Annotated[str, Argument(help="The text to read.", show_default=False)],
    *,
    positions: Annotated[int, Option(help="How many of the last tokens the table shows; --json has all.")] = 6,
    tuned: Annotated[bool, Option("--tuned", help="Also learn a tuned lens on the run's validation text, and compare both.")] = False,
    steps: Annotated[int, Option(help="Steps that the tuned lens learns.")] = 100,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1; not mps, which lacks the float64 that this takes.")] = "cpu",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Read the stream at every layer as if the model ended there: the likeliest next token, by layer and position.

    The logit lens applies the model's own final norm and output projection to each state. The tuned lens corrects each state first by
    a linear map that is learned on held-out text; how far both are from the final answer is reported.

    Examples:

      andrea lens runs/first "Once upon a time"

      andrea lens runs/first "Once upon a time" --tuned

      andrea lens runs/first "The cat sat on the" --json
    """
    from andrea.checkpoint import load
    from andrea.infer import prompt_ids
    from andrea.machine import choose_device

    if steps < 1 or positions < 1:
        raise ValueError(f"--steps {steps} and --positions {positions} must be at least 1")
    opened = load(run, at, choose_device(device).value)
    found = report(opened, prompt_ids(opened.tokenizer, text), steps if tuned else 0)
    if as_json:
        print_json({"run": str(opened.path), "step": opened.step, "text": text, **found})
    else:
        terminal(tables(found, positions))


def report(opened: "Run", ids: list[int], steps: int) -> dict[str, Any]:
    """What --json prints. For every token: the station from which its answer stays, and the first at which the right next one is on top."""
    import torch

    from andrea.insight.flow import held_out
    from andrea.insight.lens import both_lenses, convergence, read, tune
    from andrea.insight.trace import stations, trace, word

    model, tokenizer = opened.model, opened.tokenizer
    names = stations(model.config.n_layer)
    seen = trace(model, ids, names, tokenizer=tokenizer)
    final = seen.logits[0]
    targets = torch.cat([seen.ids[0, 1:], final[-1:].argmax(-1)])  # what follows; after the text, the answer
    readings = [read(model, seen[name][0], final, targets) for name in names]
    top = torch.stack([reading.top[:, 0] for reading in readings])
    settled = convergence(top, final.argmax(-1)).tolist()
    right = [[int(top[k, t]) == ids[t + 1] for k in range(len(names))] for t in range(len(ids) - 1)]
    kls: tuple[list[float], list[float]] | None = None
    if steps:
        rows = held_out(opened.open_data().val, model.config.context, HELD_OUT)[:, :-1].to(final.device)
        learned, measured = rows.tensor_split(2)
        logit, better = both_lenses(model, tune(model, learned, steps), measured)
        kls = logit.tolist(), better.tolist()
    return {
        "tokens": [
            {
                "position": t,
                "id": id,
                "text": text,
                "settles_at": names[settled[t]],
                "right_first_at": next((names[k] for k, yes in enumerate(right[t]) if yes), None) if t < len(right) else None,
                "next": seen.words[t + 1] if t < len(right) else None,
            }
            for t, (id, text) in enumerate(zip(ids, seen.words, strict=True))
        ],
        "stations": [
            {
                "station": name,
                "entropy_bits": reading.entropy.mean().item(),
                "kl": reading.kl.mean().item(),
                "right": sum(row[k] for row in right) / len(right) if right else None,
                "held_out_kl": kls and {"logit": kls[0][k], "tuned": kls[1][k]},
                "positions": [
                    {
                        "top": [
                            {"text": word(tokenizer, i), "id": i, "probability": p}
                            for i, p in zip(reading.top[t].tolist(), reading.top_p[t].tolist(), strict=True)
                        ],
                        "entropy_bits": reading.entropy[t].item(),
                        "kl": reading.kl[t].item(),
                        "next_probability": reading.p[t].item(),
                        "next_rank": int(reading.rank[t]),
                    }
                    for t in range(len(ids))
                ],
            }
            for k, (name, reading) in enumerate(zip(names, readings, strict=True))
        ],
    }


def tables(found: dict[str, Any], positions: int) -> list[Table]:
    shown = found["tokens"][-positions:]
    columns = ["after"] + [f"{token['position']}: {token['text']!r}" for token in shown]
    rows = []
    for station in found["stations"]:
        best = [station["positions"][token["position"]]["top"][0] for token in shown]
        rows.append((station["station"], *(f"{b['text']!r} {percent(b['probability'])}" for b in best)))
    follows = ("next in the text", *("" if token["next"] is None else repr(token["next"]) for token in shown))
    first = ("right first after", *(token["right_first_at"] or "" for token in shown))
    means = []
    for s in found["stations"]:
        both = s["held_out_kl"]
        more = (f"{both['logit']:.3f}", f"{both['tuned']:.3f}") if both else ()
        right = "" if s["right"] is None else percent(s["right"])
        means.append((s["station"], f"{s['entropy_bits']:.2f}", f"{s['kl']:.3f}", right, *more))
    heads = ("after", ">entropy, bits", ">KL(final || lens), nats", ">right")
    more = (">KL on held-out text", ">of the tuned lens") if found["stations"][0]["held_out_kl"] else ()
    return [
        Table("Logit lens: the likeliest next token if the model ended there", columns, [*rows, follows, first]),
        Table("Means over the text", (*heads, *more), means, "right: how often the likeliest token is the one that follows."),
    ]
