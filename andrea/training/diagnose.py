"""What the course of a run says of it, in plain words: overfitting, still falling, text read too often, a rate that was too high or low."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from andrea.config import RunConfig
from andrea.presets import PRESETS
from andrea.training.guard import EARLY
from andrea.training.plan import PASSES, TOKENS_PER_PARAMETER

RISEN = 0.01  # of the lowest validation loss: a rise of more is no noise, for the windows are always the same
FALLING = 0.005  # of the loss, from one evaluation to the next
CLIPPED = 0.5  # of the steps of the second half
LEARNT_LITTLE, ENOUGH_STEPS = 0.75, 200  # of ln V, after so many steps


def diagnose(metrics: Sequence[Mapping[str, Any]], c: RunConfig, train_tokens: int, parameters: int) -> tuple[str, ...]:
    """A sentence for everything that is worth saying of a run with these events; none where nothing is."""
    steps = [m for m in metrics if m["event"] == "StepDone"]
    evaluations = [m for m in metrics if m["event"] == "Evaluated" and m["step"] and not m["whole"]]
    back, left_out = (sum(m["event"] == name for m in metrics) for name in ("WentBack", "Skipped"))
    if not steps or not evaluations:
        return ()
    told, tokens = [], steps[-1]["tokens"]
    lowest, last = min(evaluations, key=lambda m: m["loss"]), evaluations[-1]
    overfits = last["loss"] > lowest["loss"] * (1 + RISEN)
    if overfits:
        more = f"more text, fewer steps, or --set dropout={min(0.5, c.model.dropout + 0.1):.1g} helps"
        told.append(
            f"overfitting: the validation loss was lowest at step {lowest['step']:,} ({lowest['loss']:.3f}) and is {last['loss']:.3f} now, "
            f"while the training loss is {fmean(m['loss'] for m in steps[-20:]):.3f}; {more}"
        )
    elif len(evaluations) > 1 and last["loss"] < evaluations[-2]["loss"] * (1 - FALLING) and tokens < TOKENS_PER_PARAMETER * parameters:
        told.append(
            f"still falling: {tokens / parameters:.2g} tokens per parameter were seen, and 20 make the most of a model; train longer"
        )
    if (passes := tokens / train_tokens) > PASSES:
        told.append(
            f"the text was read {passes:.1f} times; beyond about 4 it teaches less and less" + "; a smaller model or more text" * overfits
        )
    clipped = [m["grad_norm"] > c.optim.grad_clip > 0 for m in steps[len(steps) // 2 :]]
    end = fmean(m["loss"] for m in steps[-20:])
    highest = max(m["loss"] for m in steps)
    if highest > steps[0]["loss"] + EARLY:
        told.append(f"the training loss rose from {steps[0]['loss']:.2f} to {highest:.2f}: the learning rate is too high")
    elif back or left_out:
        told.append(f"{left_out} steps were left out and the run went back {back} times: the learning rate may be too high")
    elif fmean(clipped) > CLIPPED and end > LEARNT_LITTLE * math.log(c.model.vocab_size):
        told.append(
            f"gradients were clipped in {fmean(clipped):.0%} of the later steps and little was learnt: the learning rate may be too high"
        )
    elif len(steps) >= ENOUGH_STEPS and end > LEARNT_LITTLE * math.log(c.model.vocab_size):
        told.append(
            "little was learnt: the learning rate may be too low"
            + f"; the presets have {least_rate():g} or more" * (c.optim.lr < least_rate())
        )
    return tuple(told)


def least_rate() -> float:
    return min(preset.optim.lr for preset in PRESETS.values())
