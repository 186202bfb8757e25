"""Grow one small model for a claim, as cheaply as may be: the training's own steps without a run folder, saves, samples and guard.

Arms are paired: one seed gives them the same windows of text in the same order, and the same numbers in every tensor whose name and
shape they share, whatever else they are made of.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from andrea.accounting import count
from andrea.claims.claim import Task
from andrea.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from andrea.data.prepare import Prepared, prepare
from andrea.evaluate import evaluate
from andrea.machine import keep_memory
from andrea.model import Transformer
from andrea.training.loop import Setting, stepper
from andrea.training.optim import optimizer_for
from andrea.training.state import State

EVAL_TOKENS = 16_384  # of validation, in windows at equal distances: the same for every run
NORMS_KEPT = 20  # of the gradient's norm, at equal distances
# The small model of most claims, 300,032 parameters without embeddings. AdamW alone: Muon makes every step of a matrix equally
# large, and what a claim says of gradients could not be seen. No guard: a run that diverges is a result.
SMALL = RunConfig(
    ModelConfig(vocab_size=512, context=64, n_layer=6, n_head=4, d_model=64),
    optim=OptimConfig(name="adamw", lr=2e-3),
    train=TrainConfig(steps=300, batch_tokens=1024, guard=False),
)


@dataclass(frozen=True)
class Text:
    """Prepared text in memory, and what a model that knows nothing but how frequent each token is has to lose on it."""

    data: Prepared
    unigram: float  # entropy of the validation text's tokens, nats


class Step(NamedTuple):
    """One step of training: the loss of its batch before it, in nats per token, and the gradient's norm before any clipping."""

    loss: float
    grad_norm: float


@cache
def corpus(config: DataConfig, vocab_size: int) -> Text:
    """The text of a configuration, prepared once in a process (4 s for the built-in corpus). Raises ValueError as prepare does."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        data = prepare(config, vocab_size, Path(folder, "data"))
        for tokens in (data.train, data.val):
            tokens.shards = [np.array(shard) for shard in tokens.shards]
    seen = np.bincount(data.val.read(0, len(data.val))) / len(data.val)
    return Text(data, float(-(seen[seen > 0] * np.log(seen[seen > 0])).sum()))


def grow(
    task: Task,
    build: Callable[[ModelConfig], Transformer] | None = None,
    text: Text | None = None,
    evaluate_at: Sequence[int] = (),
) -> dict[str, Any]:
    """Figures of one run, which `grown` describes. The text is by default that of the task's configuration."""
    return grown(task.config, task.seed, build, text, evaluate_at)[0]


def grown(
    config: RunConfig,
    seed: int,
    build: Callable[[ModelConfig], Transformer] | None = None,
    text: Text | None = None,
    evaluate_at: Sequence[int] = (),
) -> tuple[dict[str, Any], Transformer]:
    """Figures of one run, and the model as it is at the end.

    loss        nats per token on the same windows of validation text, of the last weights; the unigram entropy where it diverged
    curve       [step, loss] after the steps in `evaluate_at`, and at the end
    diverged    the weights or the loss are no numbers, or the final loss is above the unigram entropy; `nan` says which
    grad_norms  of every n-th step, before clipping; step_ms the median step's time
    """
    text = text or corpus(config.data, config.model.vocab_size)
    state, run_steps = training(config, seed, build, text)
    measure = lambda: evaluate(state.model, text.data.val, text.data.tokenizer, limit=EVAL_TOKENS).loss
    total, norms, times, curve = steps_of(config), [], [], []
    for _ in range(total):
        began = perf_counter()
        step = next(run_steps)
        times.append(perf_counter() - began)
        norms.append(step.grad_norm)
        if not (math.isfinite(step.loss) and math.isfinite(step.grad_norm)):
            break  # no step brings such weights back
        if state.step in evaluate_at and state.step < total:
            curve.append([state.step, measure()])
    last = measure() if state.step == total and all(map(math.isfinite, norms)) else math.nan
    nan = not math.isfinite(last)
    loss = text.unigram if nan else last
    figures = {
        "loss": min(loss, text.unigram),
        "curve": [*([step, value] for step, value in curve if math.isfinite(value)), [total, loss]],
        "diverged": nan or last > text.unigram,
        "nan": nan,
        "steps_done": state.step,
        "parameters": trunk(state.model),
        "flops_per_token": count(config.model).flops_per_token,
        "step_ms": 1000 * median(times),
        "grad_norms": [norm for norm in norms[:: max(1, total // NORMS_KEPT)] if math.isfinite(norm)],
        "tokens": state.step * config.train.batch_tokens,
        "unigram": text.unigram,
        "text": text.data.fingerprint[:16],
    }
    return figures, state.model


def training(
    config: RunConfig, seed: int, build: Callable[[ModelConfig], Transformer] | None = None, text: Text | None = None
) -> tuple[State, Iterator[Step]]:
    """The state before the first step, and the steps, each made when it is asked for: those of `andrea train` on a CPU in float32."""
    text = text or corpus(config.data, config.model.vocab_size)
    config = replace(config, train=replace(config.train, seed=seed))
    keep_memory()
    # Plain torch: at this size as fast as anything, and no Numba, whose second thread slows torch down where the cores are taken (LOG.md).
    resolved = {"device": "cpu", "dtype": "float32", "kernels": "torch", "recompute": False, "steps": steps_of(config)}
    resolved["micro_batch"] = config.rows
    model = paired(lambda: (build or Transformer)(config.model), seed)
    torch.manual_seed(seed)  # of dropout
    state = State(model, optimizer_for(model, config.optim))
    setting = Setting(Path(), config, resolved, text.data, state.model)
    run_step = stepper(state, setting)

    def run_steps() -> Iterator[Step]:
        while True:
            loss, norm, _ = run_step()
            state.step += 1
            yield Step(loss, norm)

    return state, run_steps()


def steps_of(config: RunConfig) -> int:
    if config.train.steps is None:
        raise ValueError("a claim's runs are of so many steps, not minutes: set train.steps")
    return config.train.steps


def trunk(model: nn.Module) -> int:
    """Parameters without embeddings and unembedding."""
    apart = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    apart |= {id(p) for name, p in model.named_parameters() if name.startswith("unembed.")}
    return sum(p.numel() for p in model.parameters() if id(p) not in apart)


# --- pairing ------------------------------------------------------------------------------------------------------------------------


class Draws(TorchFunctionMode):
    """Inside, the k-th tensor that is filled at random has a generator of its own, seeded by the k-th name; all are kept in `drawn`."""

    RANDOM = (Tensor.normal_, Tensor.uniform_, nn.init.kaiming_uniform_)

    def __init__(self, seed: int, names: Sequence[str] = ()):
        super().__init__()
        self.seed, self.names = seed, names
        self.drawn: list[Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in self.RANDOM:
            name = self.names[len(self.drawn)] if self.names else ""
            kwargs["generator"] = torch.Generator().manual_seed(seed_of(name, self.seed))
            self.drawn.append(args[0] if args else kwargs["tensor"])
        return func(*args, **kwargs)


def paired(build: Callable[[], Transformer], seed: int) -> Transformer:
    """What `build` makes, where every random tensor has numbers that depend on its name, its shape and the seed alone.

    It is built twice: a tensor has no name before the module is whole, so that the first time tells which draw is whose.
    """
    torch.manual_seed(seed)  # of what is drawn in another way
    with Draws(seed) as first:
        model = build()
    places = {p.untyped_storage().data_ptr(): name for name, p in model.named_parameters()}
    names, times = [], dict[str, int]()
    for tensor in first.drawn:  # none of them has been freed, so that no two have the same place
        name = f"{places.get(tensor.untyped_storage().data_ptr(), 'no parameter')}@{tensor.storage_offset()}"
        times[name] = times.get(name, 0) + 1
        names.append(f"{name}#{times[name]}")
    torch.manual_seed(seed)
    with Draws(seed, names):
        return build()


def seed_of(name: str, seed: int) -> int:
    return int.from_bytes(sha256(f"{seed} {name}".encode()).digest()[:7], "big")
