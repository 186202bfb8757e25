"""What is said of courses whose trouble is known."""

import pytest

from andrea.config import override
from andrea.presets import preset
from andrea.training.diagnose import diagnose

CONFIG = override(preset("andrea-1m"), "vocab_size=1000", "steps=400")


def course(validation, training=3.0, norm=0.5, tokens=1000):
    steps = [{"event": "StepDone", "step": i + 1, "loss": training, "grad_norm": norm, "tokens": tokens * (i + 1)} for i in range(400)]
    evaluations = [
        {"event": "Evaluated", "step": 400 * (i + 1) // len(validation), "loss": loss, "whole": False} for i, loss in enumerate(validation)
    ]
    return [*steps, *evaluations]


@pytest.mark.parametrize(
    ("metrics", "train_tokens", "said"),
    [
        (
            course([4.0, 3.0, 3.2], training=1.0),
            10**6,
            ["overfitting: the validation loss was lowest at step 266 (3.000) and is 3.200 now"],
        ),
        (
            course([4.0, 3.0, 3.2], 1.0),
            40_000,
            ["overfitting", "the text was read 10.0 times; beyond about 4 it teaches less and less; a smaller"],
        ),
        (course([4.0, 3.5, 3.2]), 10**6, ["still falling: 0.4 tokens per parameter were seen"]),
        (course([4.0, 3.5, 3.499]), 10**6, []),
        (course([4.0, 3.5, 3.499], tokens=10**6), 10**10, []),
        (course([6.8, 6.7, 6.699], training=6.7), 10**6, ["little was learnt: the learning rate may be too low"]),
        (course([6.8, 6.7, 6.699], training=6.7, norm=9.0), 10**6, ["gradients were clipped in 100% of the later steps"]),
        ([*course([4.0, 3.5, 3.499]), {"event": "WentBack"}], 10**6, ["0 steps were left out and the run went back 1 times"]),
        (
            [{**course([4.0])[0], "loss": 6.9}, *course([4.0, 3.5, 3.499], training=9.0)],
            10**6,
            ["the training loss rose from 6.90 to 9.00: the l"],
        ),
        ([], 10**6, []),
    ],
)
def test_trouble_is_named(metrics, train_tokens, said):
    told = diagnose(metrics, CONFIG, train_tokens, parameters=10**6)
    assert len(told) == len(said), told
    assert all(sentence.startswith(words) for sentence, words in zip(told, said, strict=True)), told


def test_a_rate_below_every_preset_is_compared_with_them():
    (told,) = diagnose(course([6.8, 6.7, 6.699], training=6.7), override(CONFIG, "lr=1e-6"), 10**6, 10**6)
    assert told.endswith("the presets have 0.002 or more")
