"""The key-value cache against one full pass. Rounding alone: sums of 32 terms of size 1 in another order, so 1e-5."""

import pytest
import torch

from andrea.config import ModelConfig
from andrea.infer import LayerCache, new_cache
from andrea.model import Transformer

VOCAB, CONTEXT = 42, 16


pytestmark = pytest.mark.usefixtures("one_thread")


def tiny(seed=0, **options):
    """A model whose attention matters: every weight is as large as a trained one's, norms and biases included."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(vocab_size=VOCAB, context=CONTEXT, n_layer=2, n_head=2, d_model=32, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def tokens(rows, length, seed=1):
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def feed(model, cache, ids, chunk):
    with torch.no_grad():
        return torch.cat([model(piece, cache=cache) for piece in ids.split(chunk, dim=1)], dim=1)


@pytest.mark.parametrize("chunk", [1, 3, CONTEXT])
@pytest.mark.parametrize("length", [1, 6, 15, CONTEXT])
@pytest.mark.parametrize("options", [{}, {"positions": "rotary"}, {"norm": "post"}, {"activation": "swiglu", "bias": False, "tied": False}])
def test_cached_logits_equal_one_full_pass_at_every_position(chunk, length, options):
    model, ids = tiny(**options), tokens(3, length)
    with torch.no_grad():
        torch.testing.assert_close(feed(model, new_cache(model, 3), ids, chunk), model(ids), atol=1e-5, rtol=1e-5)


def test_a_cache_has_the_models_shape_dtype_and_device():
    cache = new_cache(tiny().to(torch.bfloat16), batch=3, length=7)
    assert len(cache) == 2
    for layer in cache:
        assert layer.k.shape == layer.v.shape == (3, 2, 7, 16)
        assert layer.k.dtype == layer.v.dtype == torch.bfloat16
        assert layer.k.device.type == "cpu" and layer.length == 0
    assert new_cache(tiny(), 1)[0].k.shape[2] == CONTEXT


def test_what_does_not_fit_is_refused_and_leaves_the_cache_as_it_was():
    model, ids = tiny(), tokens(1, 6)
    cache = new_cache(model, 1, length=6)
    feed(model, cache, ids[:, :4], 4)
    with pytest.raises(ValueError, match="7 positions do not fit a cache of 6"):
        feed(model, cache, ids[:, 3:6], 3)
    assert [layer.length for layer in cache] == [4, 4]
    with torch.no_grad():
        torch.testing.assert_close(feed(model, cache, ids[:, 4:], 2), model(ids)[:, 4:], atol=1e-5, rtol=1e-5)


def test_another_number_of_rows_is_refused_and_not_broadcast():
    model = tiny()
    with pytest.raises(ValueError, match="1 rows were given to a cache of 3"):
        feed(model, new_cache(model, 3), tokens(1, 2), 2)


@pytest.mark.parametrize(("batch", "length"), [(0, 4), (1, 0), (1, CONTEXT + 1)])
def test_a_cache_without_rows_or_longer_than_the_context_is_refused(batch, length):
    with pytest.raises(ValueError, match=f"{batch} rows and {length} positions"):
        new_cache(tiny(), batch, length)


def test_extend_returns_everything_held_in_order():
    cache = LayerCache((1, 1, 3, 1), torch.float32, torch.device("cpu"))
    cache.extend(torch.tensor([[[[1.0]]]]), torch.tensor([[[[-1.0]]]]))
    k, v = cache.extend(torch.tensor([[[[2.0], [3.0]]]]), torch.tensor([[[[-2.0], [-3.0]]]]))
    assert k.flatten().tolist() == [1, 2, 3] and v.flatten().tolist() == [-1, -2, -3]
