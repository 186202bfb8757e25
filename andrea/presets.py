"""Names for whole runs. The 12m, 120m and 480m shapes are the specification's family; 1m and 4m are ours, for minutes on a CPU.

What differs from the defaults in the small ones was measured to learn more in the same time (LOG.md, 2026-11-29).

vocab_size = learned pieces + 256 bytes + 1 separator throughout.
"""

from difflib import get_close_matches

from andrea.config import ModelConfig, OptimConfig, RunConfig, TrainConfig

PRESETS = {
    "andrea-1m": RunConfig(
        ModelConfig(vocab_size=2048 + 257, context=256, n_layer=4, n_head=4, d_model=128, positions="rotary", init="zero"),
        optim=OptimConfig(lr=2e-2, matrix_lr=0.03, momentum=0.9, beta1=0.8),
        train=TrainConfig(minutes=5, batch_tokens=2048),
    ),
    "andrea-4m": RunConfig(
        ModelConfig(vocab_size=4096 + 257, context=256, n_layer=5, n_head=8, d_model=256, positions="rotary", init="zero"),
        optim=OptimConfig(lr=1e-2, matrix_lr=0.03, momentum=0.9, beta1=0.8),
        train=TrainConfig(minutes=15, batch_tokens=2048),
    ),
    "andrea-12m": RunConfig(
        ModelConfig(vocab_size=4096 + 257, context=1024, n_layer=6, n_head=12, d_model=384),
        optim=OptimConfig(lr=6e-3),
        train=TrainConfig(minutes=120, batch_tokens=16_384),
    ),
    "andrea-120m": RunConfig(
        ModelConfig(vocab_size=8192 + 257, context=1024, n_layer=12, n_head=12, d_model=768),
        optim=OptimConfig(lr=3e-3),
        train=TrainConfig(minutes=24 * 60, batch_tokens=131_072),
    ),
    "andrea-480m": RunConfig(
        ModelConfig(vocab_size=8192 + 257, context=1024, n_layer=16, n_head=24, d_model=1536),
        optim=OptimConfig(lr=2e-3),
        train=TrainConfig(minutes=7 * 24 * 60, batch_tokens=262_144),
    ),
}


def preset(name: str) -> RunConfig:
    """The preset of that name; ValueError with the nearest name otherwise."""
    if name not in PRESETS:
        near = [known for known in PRESETS if known.endswith(f"-{name}")] or get_close_matches(name, PRESETS, n=1, cutoff=0.85)
        raise ValueError(f"there is no preset {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(PRESETS)}"))
    return PRESETS[name]
