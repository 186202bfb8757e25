"""What a run is: frozen dataclasses, one per concern, no torch. A preset is a value; an override is `path=value`."""

import codecs
import encodings.aliases
import math
import sys
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from reprlib import repr as shown  # short, however large a value a file holds
from typing import Any, Literal, get_args, get_origin, get_type_hints

FORMAT_VERSION = 1
OTHER_NAMES = {"learning_rate": "lr", "block_size": "context", "n_embd": "d_model", "batch_size": "batch_tokens", "max_iters": "steps"}
LANGUAGES = ("en", "sv")  # of the stories
STORIES = 10_000  # 6.7 MB
LARGEST_FLOAT = sys.float_info.max
LARGEST = 2**48  # of any whole number here: far above what a machine can count to, and products of two still fit a float


@dataclass(frozen=True)
class ModelConfig:
    """Shape and options of one Transformer. Counts start with n_, widths with d_."""

    vocab_size: int = 8449
    context: int = 1024  # tokens
    n_layer: int = 12
    n_head: int = 12
    d_model: int = 768
    mlp_ratio: float | None = None  # mlp width / d_model; None is 4, or 8/3 for swiglu
    mlp_dim: int | None = None  # wins over mlp_ratio when given
    positions: Literal["learned", "rotary"] = "learned"  # a vector added to each, or q and k turned by it
    norm: Literal["pre", "post", "none"] = "pre"
    residual: bool = True
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    bias: bool = True  # of every linear layer
    tied: bool = True  # the output projection is the token embedding
    init: Literal["gpt2", "zero", "xavier"] = "gpt2"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        positive(self, "vocab_size", "context", "n_layer", "n_head", "d_model")
        if self.d_model % self.n_head:
            raise ValueError(f"d_model={self.d_model} is not a multiple of n_head={self.n_head}; every head needs the same width")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f"rotary positions turn pairs, and heads of width d_model / n_head = {self.d_head} have an odd one; change either"
            )
        if self.mlp_ratio is not None and abs(self.mlp_ratio) > LARGEST:
            raise ValueError(f"mlp_ratio={self.mlp_ratio} is more than any machine can hold")
        if self.mlp_width < 1:
            raise ValueError(f"the MLP would be {self.mlp_width} wide; mlp_dim or mlp_ratio must give at least 1")
        within(self, "dropout", 0, 1, open_end=True)

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_head

    @property
    def mlp_width(self) -> int:
        """M: mlp_dim when given, else mlp_ratio * d_model; SwiGLU's is rounded up to a multiple of 8."""
        if self.mlp_dim is not None:
            return self.mlp_dim
        if self.activation == "swiglu":
            wide = (8 / 3 if self.mlp_ratio is None else self.mlp_ratio) * self.d_model
            return math.ceil(wide / 8 - 1e-9) * 8
        return round((4 if self.mlp_ratio is None else self.mlp_ratio) * self.d_model)


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from and how it is cut. No paths means a built-in corpus."""

    paths: tuple[str, ...] = ()
    corpus: Literal["library", "stories"] = "library"  # where there are no paths: Python's own source, or stories from a grammar
    language: str | None = None  # of the stories: en (None too) or sv
    stories: int | None = None  # how many; None: STORIES
    tokenizer: Literal["bpe", "char", "byte"] = "bpe"
    split: Literal["hash", "tail"] = "hash"  # by the content of each unit, or the end of the text
    val_fraction: float = 0.1  # of the bytes
    seed: int = 0  # of the hash split, and of the stories
    dedup: Literal["off", "exact", "near"] = "exact"  # leave out equal units; near: paragraphs that mostly stood before, too
    field: str = "text"  # the key or column of .jsonl, .csv, .tsv, .parquet and .arrow that holds the text
    encoding: str = "auto"  # of files that are not UTF-8 or UTF-16; auto is cp1252 with Latin-1's additions
    normalize: Literal["none", "nfc"] = "none"  # Unicode normal form; none leaves every character as it is
    bin_tokenizer: str | None = None  # what the token files (.bin) of nanoGPT and llm.c were made with

    def __post_init__(self) -> None:
        check_types(self)
        if self.corpus != "stories" and (self.language, self.stories) != (None, None):
            raise ValueError(
                f"language and stories are for the corpus 'stories', not {self.corpus!r}; give --corpus stories, or leave them out"
            )
        if self.language not in (None, *LANGUAGES):
            raise ValueError(f"there are no stories in language={shown(self.language)}; there are some in {' and '.join(LANGUAGES)}")
        if self.stories is not None:
            positive(self, "stories")
        if self.encoding != "auto":
            check_encoding(self.encoding)
        within(self, "val_fraction", 0, 0.5)
        if self.val_fraction == 0:
            raise ValueError("val_fraction=0 leaves nothing to validate on; give a fraction up to 0.5")


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer and its learning-rate schedule: training/optim.py and training/schedule.py have the sources."""

    name: Literal["muon", "adamw"] = "muon"  # Muon for the hidden matrices and AdamW for the rest, or AdamW for all
    lr: float = 1e-3  # AdamW's peak
    matrix_lr: float = 0.02  # Muon's peak
    momentum: float = 0.95  # Muon's
    schedule: Literal["wsd", "cosine"] = "wsd"  # warm-up, stable, decay; or cosine
    warmup: float = 0.02  # of the steps
    decay: float = 0.4  # of the steps, at the end (wsd only)
    floor: float = 0.0  # final lr / peak lr
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    grad_clip: float = 1.0  # largest gradient norm; 0 is off

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("lr", "matrix_lr", "eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0")
        for name in ("warmup", "decay", "floor"):
            within(self, name, 0, 1)
        for name in ("momentum", "beta1", "beta2"):
            within(self, name, 0, 1, open_end=True)
        for name in ("weight_decay", "grad_clip"):
            within(self, name, 0, math.inf)
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup={self.warmup} and decay={self.decay} together take more than the whole run")


@dataclass(frozen=True)
class TrainConfig:
    """How long, how much at a time, on what. `auto` values are settled once and stored in run.json as `resolved`."""

    steps: int | None = None  # None: as many as fit in `minutes`
    minutes: float = 5.0  # of training time; only used without `steps`
    batch_tokens: int = 4096  # targets per optimizer step
    micro_batch: int | None = None  # sequences per pass; None: chosen
    evaluate_every: int | None = None  # steps; None: 20 times in the run, if that is every 50 or more
    eval_tokens: int = 32_768  # spread over the validation split, while training; the end reads all of it
    sample_every: int | None = None  # the same, 5 times
    save_every: int | None = None  # the same, 10 times; every best is saved besides
    keep: int = 2  # of the newest checkpoints; the best is kept besides
    keep_every: int | None = None  # steps; a checkpoint of such a step is kept for good
    telemetry: bool = True  # look inside at every evaluation: gradients, writes, heads and the lens over the layers
    guard: bool = True  # leave out steps that are not finite, go back from spikes
    seed: int = 1337
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    kernels: Literal["auto", "torch", "triton", "mixed"] = "auto"  # the fastest here, torch's own, ours for a GPU, those but for attention
    recompute: Literal["auto", "on", "off"] = "auto"  # activations again in backward, block by block; auto: where memory wants it

    def __post_init__(self) -> None:
        check_types(self)
        positive(self, "batch_tokens", "eval_tokens", "keep")
        for name in ("steps", "micro_batch", "evaluate_every", "sample_every", "save_every", "keep_every"):
            if getattr(self, name) is not None:
                positive(self, name)
        if not 0 < self.minutes < math.inf:
            raise ValueError(f"minutes={self.minutes} is not a length of time above 0")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed={self.seed} is not a whole number from 0 to 2^63 - 1")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        if self.train.batch_tokens % self.model.context:
            near = max(1, round(self.train.batch_tokens / self.model.context)) * self.model.context
            raise ValueError(
                f"batch_tokens={self.train.batch_tokens} is not a multiple of context={self.model.context}; the nearest that is: {near}"
            )
        micro = self.train.micro_batch
        if micro and self.rows % micro:
            raise ValueError(f"micro_batch={micro} does not divide the {self.rows} sequences of a batch")

    @property
    def rows(self) -> int:
        """Sequences per optimizer step."""
        return self.train.batch_tokens // self.model.context


def check_types(config: Any) -> None:
    """Check that every field is of its kind, and finite, and one of the known words where it takes words."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        options = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        if get_origin(kind) is Literal and isinstance(value, str):
            read_value(name, kind, value)
        elif not any(is_a(value, option) for option in options):
            wanted = " or ".join(getattr(option, "__name__", str(option)) for option in options)
            raise ValueError(f"{name}={shown(value)} is {type(value).__name__}; wanted {wanted}")


def is_a(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST_FLOAT <= value <= LARGEST_FLOAT
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(item, get_args(kind)[0]) for item in value)
    return get_origin(kind) is not Literal and isinstance(value, kind)


def check_encoding(name: str) -> None:
    try:
        known = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        known = False
    if not known:
        near = get_close_matches(name.lower(), sorted({*encodings.aliases.aliases, *encodings.aliases.aliases.values()}), n=1)
        raise ValueError(f"encoding={name!r} is none that Python knows" + (f"; did you mean {near[0]!r}?" if near else ""))


def positive(config: Any, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} must be at least 1")
        if getattr(config, name) > LARGEST:
            raise ValueError(f"{name}={getattr(config, name)} is more than any machine can hold")


def within(config: Any, name: str, low: float, high: float, open_end: bool = False) -> None:
    value = getattr(config, name)
    if not (low <= value < high if open_end else low <= value <= high):
        raise ValueError(f"{name}={value} is outside {low} to {high}" + (" (exclusive)" if open_end else ""))


def override(config: Any, *assignments: str) -> Any:
    """Return config with each `path=value` set, the value read as the field's own type; all are checked together.

    A path is `section.field`, or the field alone where only one section has it. Raises ValueError for a path that names no field
    (with the nearest name), one given twice, and a value that cannot be read.
    """
    changes: dict[str, str] = {}
    for assignment in assignments:
        path, sign, text = assignment.partition("=")
        if not sign:
            raise ValueError(f"{assignment!r} is not path=value, for example optim.lr=1e-3")
        path = full_path(config, path.strip().replace("-", "_"))
        if path in changes:
            raise ValueError(f"{path} is set twice, to {changes[path]!r} and {text.strip()!r}")
        changes[path] = text.strip()
    return set_fields(config, changes)


def full_path(config: Any, path: str) -> str:
    """`lr` -> `optim.lr`; a full path comes back as it is."""
    sections = [f.name for f in fields(config) if is_dataclass(getattr(config, f.name))]
    if "." in path or path in {f.name for f in fields(config)}:
        return path
    homes = [f"{s}.{path}" for s in sections if path in {f.name for f in fields(getattr(config, s))}]
    if len(homes) > 1:
        raise ValueError(f"{path!r} could be {' or '.join(homes)}; say which")
    if sections and not homes:
        known = {f.name: s for s in sections for f in fields(getattr(config, s))}
        near = [OTHER_NAMES.get(name, name) for name in get_close_matches(path, [*known, *OTHER_NAMES], n=1)]
        raise ValueError(f"no section has a field {path!r}" + (f"; did you mean '{known[near[0]]}.{near[0]}'?" if near else ""))
    return homes[0] if homes else path


def set_fields(config: Any, changes: Mapping[str, str]) -> Any:
    """Set several dotted paths at once, so that values which must agree may change together."""
    hints = get_type_hints(type(config))
    new: dict[str, Any] = {}
    nested: dict[str, dict[str, str]] = {}
    for path, text in changes.items():
        name, _, rest = path.partition(".")
        check_name(config, name)
        if is_dataclass(getattr(config, name)) != bool(rest):
            what = "a section" if not rest else "a single value"
            raise ValueError(f"{name!r} is {what}, so {path!r} does not name a field")
        if rest:
            nested.setdefault(name, {})[rest] = text
        else:
            new[name] = read_value(name, hints[name], text)
    return replace(config, **new, **{name: set_fields(getattr(config, name), inner) for name, inner in nested.items()})


def check_name(config: Any, name: str) -> None:
    names = [f.name for f in fields(config)]
    if name not in names:
        near = get_close_matches(name[:50], names, n=1)
        kind = config.__name__ if isinstance(config, type) else type(config).__name__
        raise ValueError(
            f"{kind} has no field {shown(name)}" + (f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(names)}")
        )


def read_value(name: str, kind: Any, text: str) -> Any:
    """Read text as the field's type: bool, int, float, str, Literal, X | None, tuple[str, ...]."""
    options = get_args(kind)
    if isinstance(kind, types.UnionType):
        return None if text.lower() == "none" else read_value(name, options[0], text)
    if get_origin(kind) is Literal:
        if text not in options:
            near = get_close_matches(text[:50], options, n=1)
            raise ValueError(f"{name}={shown(text)} is not one of {', '.join(options)}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return text
    if get_origin(kind) is tuple:
        return tuple(part for part in text.split(",") if part)
    if kind is bool:
        known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
        if text.lower() not in known:
            raise ValueError(f"{name}={text!r} is neither true nor false")
        return known[text.lower()]
    try:
        if kind is int:
            return int(text.replace("_", ""), 10) if "e" not in text.lower() else exact_int(float(text))
        value = kind(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{name}={text!r} is not {'a whole number' if kind is int else 'a number'}") from None
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{name}={text!r} is not a number")
    return value


def exact_int(value: float) -> int:
    if value != int(value):
        raise ValueError(value)
    return int(value)


def to_dict(config: Any) -> dict[str, Any]:
    """A dictionary that json can write; from_dict reads it back to an equal config."""
    return asdict(config)


def from_dict(kind: type, values: Mapping[str, Any]) -> Any:
    """Build a config from to_dict's output. Missing keys take the default; any other mistake is a ValueError."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{kind.__name__} is {shown(values)}; wanted an object with its fields")
    hints = get_type_hints(kind)
    read = {}
    for name, value in values.items():
        check_name(kind, name)
        if is_dataclass(hints[name]):
            value = from_dict(hints[name], value)
        elif isinstance(value, list):
            value = tuple(value)
        read[name] = value
    return kind(**read)
