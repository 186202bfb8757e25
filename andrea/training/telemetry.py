"""What a run looks at inside its model at every evaluation, on a text that stays the same, so that it can tell how its layers grew."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch.nn.functional as F

from andrea.evaluate import TokenSequence
from andrea.insight.flow import SCORES, held_out, lens_entropies, repeated, scores, uniform, writes
from andrea.insight.lens import wide
from andrea.insight.trace import stations, sublayers, trace
from andrea.model import Transformer
from andrea.run_folder import find_run, read_run
from andrea.training.report import Observed, read_metrics

ROWS, LENGTH = 2, 128  # of the probe text, from the validation split; a shorter context has shorter rows
PAIRS, COPY = 2, 32  # random sequences for the heads, and tokens in each of their two copies


def observe(model: Transformer, val: TokenSequence, opening: int, step: int, seconds: float) -> Observed | None:
    """The model as it is; None for a context or a validation split that is too short to see anything in.

    The pass is in float32 and in evaluation mode. No .grad changes, no random generator is drawn from.
    """
    c = model.config
    length = min(c.context, LENGTH, (len(val) - 1) // 2)
    if length < 2:
        return None
    rows = held_out(val, length, ROWS).to(model.token_embed.weight.device)
    targets, states = rows[:, 1:].flatten(), stations(c.n_layer)
    loss = lambda logits: F.cross_entropy(wide(logits.flatten(0, 1)), targets)
    seen = trace(model, rows[:, :-1], [*states, *sublayers(c.n_layer)], gradient=loss)
    wrote, bits = writes(seen), lens_entropies(seen)
    n = min(COPY, (c.context - 1) // 2, c.vocab_size - 1)
    return Observed(
        step,
        short(seen.gradient(name).norm(dim=-1).mean().item() for name in states),
        short(write.relative for write in wrote.values()),
        short(write.cosine for write in wrote.values()),
        short(write.norm for write in wrote.values()),
        short(bits[name] for name in states),
        head_scores(model, n, opening) if n > 1 else [],
        short(uniform(n).values()) if n > 1 else [],
        round(seconds, 3),
    )


def head_scores(model: Transformer, n: int, opening: int) -> list[list[list[float | None]]]:
    """By block, by head, the four of insight/flow.py's SCORES on random sequences that come twice."""
    seen = trace(model, repeated(model, n, PAIRS, opening), ["blocks.*.attn.q", "blocks.*.attn.k"])
    patterns = (seen[f"blocks.{i}.attn.pattern"] for i in range(model.config.n_layer))
    return [[short(scores(A, n).values()) for A in pattern.unbind(1)] for pattern in patterns]


def grown(name: str | Path, folder: Path = Path("runs")) -> dict[str, Any]:
    """What one run observed inside its model as it learned. Raises ValueError for a run that did not look."""
    run = find_run(name, folder)
    observed = [m for m in read_metrics(run) if m["event"] == "Observed"]
    if not observed:
        raise ValueError(
            f"{run} noted nothing of its layers; runs do at every evaluation, unless they were imported, had --set telemetry=false, or a "
            "context of one token"
        )
    config = read_run(run)[0].model
    names = {"stations": stations(config.n_layer), "sublayers": sublayers(config.n_layer), "scores": SCORES}
    return {"run": str(run), **names, "observed": observed}


def short(values: Iterable[float | None]) -> list[float | None]:
    """Four digits are more than a probe of this size tells."""
    return [None if value is None else float(f"{value:.4g}") for value in values]
