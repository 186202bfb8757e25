"""A claim: a sentence, what it means as something that can be measured, and how it is decided; one file, `CLAIM = Claim(...)`.

A file of anybody's does as well as one of ours: `andrea claims run mine.py`.
"""

import ast
import hashlib
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from andrea.claims.sentences import SENTENCES
from andrea.config import ModelConfig, RunConfig, override

if TYPE_CHECKING:
    from andrea.model import Transformer

HOME = Path(__file__).parent
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ,=_.+-]*[A-Za-z0-9+])?")  # of claims and arms: they become names of files, on every system
SEEDS_NEEDED = 3  # fewer give no verdict

Figures = Mapping[str, Any]  # what one run measured; json can write it


@dataclass(frozen=True)
class Arm:
    """One of the things compared."""

    changes: tuple[str, ...] = ()  # path=value, in the language of --set: ("model.activation=relu",)
    build: "Callable[[ModelConfig], Transformer] | None" = None  # a module of your own; None is Transformer itself


@dataclass(frozen=True)
class Task:
    """One run: all that its figures depend on."""

    claim: str
    arm: str
    seed: int  # of weights and of the order of the data; the same in every arm, so that arms are compared seed by seed
    config: RunConfig  # complete: the arm's changes, the rate and the seed are in it
    rate: float = 1.0  # the factor of the learning rates that was applied, for the record


@dataclass(frozen=True)
class Question:
    """A number that the claim says is below 0, decided on its own.

    `value` takes the figures of one seed, by arm. Three kinds:
        mean    the mean over seeds, by a t interval
        share   value is -1, 0 or 1 (of one seed: it went the claim's way, both went alike, the other way), by the exact sign test
        exact   arithmetic: value has no chance in it, and one seed is enough
    """

    name: str  # "GELU against ReLU after 600 steps"
    value: Callable[[Mapping[str, Figures]], float]
    margin: float  # a 95 % interval within +-margin is "no difference found"
    unit: str = "nats per token"
    kind: Literal["mean", "share", "exact"] = "mean"
    needed: bool = True  # whether the claim falls with it; otherwise it is asked beside


@dataclass(frozen=True)
class Claim:
    """Everything that is settled before the first run. Raises ValueError for what contradicts itself."""

    name: str  # as on the command line: gelu-relu, in gelu_relu.py
    section: str  # of the specification: "6.3"; sentences.py says which claims stand for which sentence
    sentence: str  # the document's
    means: str  # the same as a statement that can be measured
    published: str  # what others have measured, and where it differs from the sentence
    sources: tuple[str, ...]
    controls: str  # what was held equal, and what was not
    arms: Mapping[str, Arm]
    base: RunConfig  # what the arms change
    measure: Callable[[Task, Arm], Figures]  # one run; a module's function
    questions: tuple[Question, ...]
    seeds: tuple[int, ...]  # of the verdict
    rates: tuple[float, ...] = (1.0,)  # factors tried for each arm on tuning_seeds; widened where the best is at the edge
    tuning_seeds: tuple[int, ...] = ()  # none of `seeds`
    quick_seeds: int = 3  # how many of `seeds` a quick run takes
    baseline: str = ""  # the arm whose seeds are the noise; by default the first
    tune_by: str = "loss"  # the figure that the best rate makes lowest, and whose spread over the baseline's seeds is the noise

    def __post_init__(self) -> None:
        names = [self.name, *self.arms]
        if bad := next((name for name in names if not NAME.fullmatch(name)), None):
            raise ValueError(f"{bad!r} names a file, so it may have letters a to z, digits, spaces and , = _ . + - alone")
        if len({name.lower() for name in self.arms}) < len(self.arms) or not self.arms:
            raise ValueError(
                f"claim {self.name} needs arms whose names differ by more than capitals; it has {', '.join(self.arms) or 'none'}"
            )
        if not self.questions or len({q.name for q in self.questions}) < len(self.questions):
            raise ValueError(f"claim {self.name} needs questions, each with a name of its own")
        if not self.seeds or len({*self.seeds, *self.tuning_seeds}) < len(self.seeds) + len(self.tuning_seeds):
            raise ValueError(f"claim {self.name} needs seeds, none twice, and none of its tuning_seeds among them")
        if len(self.rates) > 1 and not self.tuning_seeds:
            raise ValueError(f"claim {self.name} has {len(self.rates)} rates to choose from and no tuning_seeds to choose by")
        if not self.rates or min(self.rates) <= 0:
            raise ValueError(f"claim {self.name} has rates {self.rates}; they are factors above 0 of the configuration's learning rates")
        if self.baseline and self.baseline not in self.arms:
            raise ValueError(f"claim {self.name} has no arm {self.baseline!r} to be its baseline; it has {', '.join(self.arms)}")

    @property
    def base_arm(self) -> str:
        return self.baseline or next(iter(self.arms))

    def task(self, arm: str, seed: int, rate: float = 1.0) -> Task:
        """The run of one arm with one seed, at so many times the configured learning rates."""
        config = override(self.base, *self.arms[arm].changes)
        optim = replace(config.optim, lr=config.optim.lr * rate, matrix_lr=config.optim.matrix_lr * rate)
        return Task(self.name, arm, seed, replace(config, optim=optim, train=replace(config.train, seed=seed)), rate)


@dataclass(frozen=True)
class Opened:
    """A claim and the file that it stands in, by which another process opens it again."""

    target: str  # a name of ours, or a path
    claim: Claim
    source: str = field(repr=False)

    @cached_property
    def design(self) -> str:
        """SHA-256 of what is settled before the first run: all but what others published, and the source of every function."""
        c = self.claim
        arms = {name: arm.changes for name, arm in c.arms.items()}
        questions = [(q.name, q.margin, q.unit, q.kind, q.needed) for q in c.questions]
        chosen = (c.name, c.sentence, c.means, c.controls, c.seeds, c.rates, c.tuning_seeds, c.base_arm, c.tune_by)
        settled = {"arms": arms, "base": differences(c.base), "questions": questions, "chosen": chosen, "code": code_of(self.source)}
        return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()


def differences(config: RunConfig) -> dict[str, dict[str, Any]]:
    """What a configuration has otherwise than the default one, so that a field which is new in it changes no design."""
    usual = asdict(RunConfig())
    return {part: {name: value for name, value in held.items() if value != usual[part][name]} for part, held in asdict(config).items()}


def code_of(source: str) -> list[str]:
    """Functions, classes and constants of a claim's file, and the small functions inside its CLAIM; spaces and line ends do not count."""
    parts = []
    for node in ast.parse(source).body:
        is_claim = isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "CLAIM" for target in node.targets)
        inside = [part for part in ast.walk(node) if isinstance(part, ast.Lambda)] if is_claim else [node]
        is_words = isinstance(node, ast.Expr)  # the docstring
        parts += [" ".join((ast.get_source_segment(source, part) or "").split()) for part in inside if not is_words]
    return parts


def names() -> list[str]:
    """Our claims, in the order of the specification's sentences; those that no sentence names come last."""
    files = [path for path in HOME.glob("*.py") if re.search(r"^CLAIM = ", path.read_text(encoding="utf-8"), re.MULTILINE)]
    there = sorted(path.stem.replace("_", "-") for path in files)
    named = dict.fromkeys(name for sentence in SENTENCES for name in sentence.claims)
    return [name for name in named if name in there] + [name for name in there if name not in named]


def open_claim(target: str) -> Opened:
    """A claim of ours by name, or anybody's by the path of its file.

    Raises ValueError for a name that is none, a file that cannot be loaded and one without a CLAIM.
    """
    path = Path(target)
    if path.suffix != ".py":
        if target not in names():
            near = get_close_matches(target, names(), n=1)
            raise ValueError(
                f"there is no claim {target!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}, or give the path of a file, mine.py")
            )
        path = HOME / f"{target.replace('-', '_')}.py"
        module = importlib.import_module(f"andrea.claims.{path.stem}")
    else:
        if not path.is_file():
            raise FileNotFoundError(f"{target} is not there; a claim is a Python file with CLAIM = Claim(...)")
        module = load(path.resolve())
    claim = getattr(module, "CLAIM", None)
    if not isinstance(claim, Claim):
        raise ValueError(f"{target} has no CLAIM = Claim(...); docs/own-claim.md shows one")
    return Opened(target if path.parent == HOME else str(path.resolve()), claim, path.read_text(encoding="utf-8"))


def load(path: Path) -> ModuleType:
    """A stranger's file, as a module; what lies beside it can be imported, as it can for a script."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"claim_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the file's own code
        raise ValueError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module
