import math

import numpy as np
import pytest
import torch
from reference import tiny
from torch import nn

from andrea.data.tokenizer import byte_tokenizer, char_tokenizer
from andrea.evaluate import Evaluation, evaluate, windows
from andrea.model import Transformer


class Held:
    """Tokens in memory, read like a file of them."""

    def __init__(self, ids):
        self.ids = np.asarray(ids)

    def __len__(self):
        return len(self.ids)

    def read(self, start, stop):
        return self.ids[start:stop]


def random_tokens(n, vocab=61):
    return Held(np.random.default_rng(0).integers(vocab, size=n))


@pytest.mark.parametrize(("n_tokens", "context"), [(1500, 1024), (17, 16), (18, 16), (2, 16), (16, 16), (33, 16), (100, 1)])
def test_every_token_but_the_first_is_a_target_once(n_tokens, context):
    targets = [i for start, stop in windows(n_tokens, context) for i in range(start + 1, stop)]
    assert targets == list(range(1, n_tokens))


def test_the_loss_is_the_same_for_every_batch_size():
    torch.manual_seed(0)
    model, tokens = Transformer(tiny()), random_tokens(1500)
    results = [evaluate(model, tokens, byte_tokenizer(), rows) for rows in (1, 3, 7, 64)]
    assert {r.targets for r in results} == {1499}
    # one float32 rounding per loss, averaged over 1,499 of them
    assert max(r.loss for r in results) - min(r.loss for r in results) < 1e-6


def test_the_loss_is_what_a_loop_over_targets_gives():
    torch.manual_seed(0)
    model, tokens = Transformer(tiny()).eval(), random_tokens(42)
    losses = []
    for start in range(0, 41, 16):
        for t in range(start + 1, min(start + 17, 42)):
            logits = model(torch.from_numpy(tokens.ids[None, start:t]))[0, -1].double()
            losses.append((torch.logsumexp(logits, 0) - logits[tokens.ids[t]]).item())
    assert evaluate(model, tokens, byte_tokenizer()).loss == pytest.approx(np.mean(losses), abs=1e-6)


def test_targets_weigh_the_same_wherever_the_batches_end():
    """Windows of 4, 4 and 2 targets with losses 1, 1 and 4: the mean is 1.6, not the mean of the means 2."""

    class Scripted(nn.Module):
        config = tiny(context=4)

        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.zeros(()))

        def forward(self, ids, targets):
            return torch.full(targets.shape, 4.0 if targets.shape[1] == 2 else 1.0)

    assert evaluate(Scripted(), random_tokens(11), byte_tokenizer(), batch_rows=1).loss == pytest.approx(1.6)


def test_perplexity_and_bits_are_of_nats():
    e = Evaluation(loss=3.0, standard_error=0.0, targets=10, bytes=10)
    assert e.perplexity == pytest.approx(20.0855, abs=5e-5)
    assert e.bits_per_byte == pytest.approx(4.3281, abs=5e-5)


def test_bits_per_byte_count_the_bytes_of_the_targets():
    tokenizer = char_tokenizer(["aåé🎉"])
    ids = tokenizer.encode("aåé🎉")
    torch.manual_seed(0)
    e = evaluate(Transformer(tiny(vocab_size=tokenizer.vocab_size)), Held([tokenizer.separator, *ids]), tokenizer)
    assert (e.targets, e.bytes) == (4, 1 + 2 + 2 + 4)
    assert e.bits_per_byte == pytest.approx(e.loss * 4 / 9 / math.log(2))


def test_the_standard_error_is_that_of_a_mean_of_windows():
    torch.manual_seed(0)
    model, tokens = Transformer(tiny()), random_tokens(16 * 9 + 1)
    means = [evaluate(model, Held(tokens.ids[i : i + 17]), byte_tokenizer()).loss for i in range(0, 16 * 9, 16)]
    e = evaluate(model, tokens, byte_tokenizer())
    assert e.standard_error == pytest.approx(np.std(means, ddof=1) / 3, rel=1e-4)  # nine equal windows


@pytest.mark.parametrize("rows", [0, -1])
def test_a_batch_of_no_rows_is_refused(rows):
    with pytest.raises(ValueError, match=f"batch_rows={rows} must be at least 1"):
        evaluate(Transformer(tiny()), random_tokens(50), byte_tokenizer(), rows)


def test_a_loss_too_large_for_its_exponential_has_infinite_perplexity():
    assert Evaluation(loss=1000.0, standard_error=None, targets=1, bytes=1).perplexity == math.inf


def test_the_mode_is_restored_after_an_error_too():
    class Broken(Held):
        def read(self, start, stop):
            raise OSError("the disk is gone")

    model = Transformer(tiny())
    with pytest.raises(OSError, match="the disk is gone"):
        evaluate(model, Broken(np.zeros(50, dtype=np.int64)), byte_tokenizer())
    assert model.training


def test_one_window_has_no_standard_error():
    assert evaluate(Transformer(tiny()), random_tokens(17), byte_tokenizer()).standard_error is None


def test_a_limit_takes_windows_from_everywhere():
    torch.manual_seed(0)
    model, tokens = Transformer(tiny()), random_tokens(16 * 10 + 1)
    some = [evaluate(model, Held(tokens.ids[start : start + 17]), byte_tokenizer()).loss for start in (0, 16 * 3, 16 * 6)]
    limited = evaluate(model, tokens, byte_tokenizer(), limit=50)
    assert limited.targets == 48
    assert limited.loss == pytest.approx(np.mean(some), abs=1e-6)
    assert evaluate(model, tokens, byte_tokenizer(), limit=1000) == evaluate(model, tokens, byte_tokenizer())
    assert evaluate(model, tokens, byte_tokenizer(), limit=1).targets == 16


def test_one_token_makes_no_prediction():
    with pytest.raises(ValueError, match="1 token to evaluate on; it takes 2"):
        evaluate(Transformer(tiny()), random_tokens(1), byte_tokenizer())


@pytest.mark.parametrize("mode", [True, False])
def test_the_mode_of_the_model_is_restored_and_dropout_is_off(mode):
    torch.manual_seed(0)
    model = Transformer(tiny(dropout=0.5)).train(mode)
    a, b = (evaluate(model, random_tokens(50), byte_tokenizer()).loss for _ in range(2))
    assert a == b
    assert model.training is mode
