import json
from dataclasses import fields

import pytest

from andrea.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig, from_dict, override, to_dict
from andrea.presets import PRESETS, preset


def test_the_model_has_at_most_fifteen_fields():
    assert len(fields(ModelConfig)) <= 15


def test_a_path_sets_its_field_and_nothing_else():
    changed = override(RunConfig(), "optim.lr=2e-3", "model.residual=off", "model.mlp_ratio=2.5", "train.steps=1_000")
    assert (changed.optim.lr, changed.model.residual, changed.model.mlp_ratio, changed.train.steps) == (2e-3, False, 2.5, 1000)
    assert override(changed, "optim.lr=1e-3", "model.residual=on", "model.mlp_ratio=none", "train.steps=None") == RunConfig()


def test_a_field_that_only_one_section_has_needs_no_section():
    assert override(RunConfig(), "lr=3e-3") == override(RunConfig(), "optim.lr=3e-3")


def test_fields_that_must_agree_may_change_together():
    assert override(RunConfig(), "d_model=100", "n_head=10").model.d_head == 10  # 100 is no multiple of the default 12


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("model.n_layers=3", r"ModelConfig has no field 'n_layers'; did you mean 'n_layer'\?"),
        ("learning_rat=1", r"no section has a field 'learning_rat'"),
        ("n_layers=3", r"no section has a field 'n_layers'; did you mean 'model.n_layer'\?"),
        ("seed=3", r"'seed' could be data.seed or train.seed; say which"),
        ("optim.lr", r"'optim.lr' is not path=value"),
        ("optim=3", r"'optim' is a section"),
        ("optim.lr.x=3", r"'lr' is a single value"),
        ("optim.lr=fast", r"lr='fast' is not a number"),
        ("optim.lr=nan", r"lr='nan' is not a number"),
        ("model.mlp_ratio=inf", r"mlp_ratio='inf' is not a number"),
        ("model.n_layer=1e400", r"n_layer='1e400' is not a whole number"),
        ("optim.lr=0", r"lr=0.0 is not above 0"),
        ("optim.beta2=1", r"beta2=1.0 is outside 0 to 1 \(exclusive\)"),
        ("optim.warmup=0.8", r"warmup=0.8 and decay=0.4 together take more than the whole run"),
        ("model.n_layer=2.5", r"n_layer='2.5' is not a whole number"),
        ("model.n_layer=1e-1", r"n_layer='1e-1' is not a whole number"),
        ("model.n_layer=0", r"n_layer=0 must be at least 1"),
        ("model.n_head=7", r"d_model=768 is not a multiple of n_head=7"),
        ("model.mlp_dim=0", r"the MLP would be 0 wide"),
        ("model.norm=prae", r"norm='prae' is not one of pre, post, none; did you mean 'pre'\?"),
        ("model.tied=perhaps", r"tied='perhaps' is neither true nor false"),
        ("model.dropout=1", r"dropout=1.0 is outside 0 to 1 \(exclusive\)"),
        ("data.val_fraction=0", r"leaves nothing to validate on"),
        ("data.val_fraction=0.6", r"val_fraction=0.6 is outside 0 to 0.5"),
        ("train.batch_tokens=5000", r"batch_tokens=5000 is not a multiple of context=1024; the nearest that is: 5120"),
        ("train.micro_batch=3", r"micro_batch=3 does not divide the 4 sequences"),
        ("train.minutes=0", r"minutes=0.0 is not a length of time"),
        ("train.seed=-1", r"seed=-1 is not a whole number"),
    ],
)
def test_a_mistake_is_answered_with_what_was_given_and_what_is_wanted(assignment, message):
    with pytest.raises(ValueError, match=message):
        override(RunConfig(), assignment)


def test_a_field_set_twice_is_refused():
    with pytest.raises(ValueError, match=r"optim.lr is set twice, to '1' and '2'"):
        override(RunConfig(), "lr=1", "optim.lr=2")


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "off"])
def test_every_way_of_saying_no_is_false(text):
    assert override(RunConfig(), f"bias={text}").model.bias is False


def test_an_integer_is_accepted_for_a_fraction():
    assert override(RunConfig(), "dropout=0").model.dropout == 0.0


def test_every_preset_survives_json():
    for config in PRESETS.values():
        assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_an_unknown_key_in_a_file_is_refused():
    with pytest.raises(ValueError, match=r"OptimConfig has no field 'momentun'"):
        from_dict(RunConfig, {"optim": {"momentun": 0.9}})


def test_a_word_that_is_none_of_the_known_ones_is_refused_however_it_comes():
    with pytest.raises(ValueError, match=r"init='gtp2' is not one of gpt2, zero, xavier; did you mean 'gpt2'"):
        ModelConfig(init="gtp2")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelConfig(d_model="768"), r"d_model='768' is str; wanted int"),
        (lambda: ModelConfig(vocab_size=2.5), r"vocab_size=2.5 is float; wanted int"),
        (lambda: ModelConfig(norm=None), r"norm=None is NoneType"),
        (lambda: ModelConfig(tied=1), r"tied=1 is int; wanted bool"),
        (lambda: ModelConfig(mlp_dim="3"), r"mlp_dim='3' is str; wanted int or NoneType"),
        (lambda: OptimConfig(lr=float("inf")), r"lr=inf is float; wanted float"),
    ],
)
def test_a_value_of_another_kind_is_refused_from_python_too(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tuples_survive_json():
    config = RunConfig(data=DataConfig(paths=("a.txt", "b,c.txt")))
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"there is no preset 'andrea-12'; did you mean 'andrea-12m'\?"):
        preset("andrea-12")
    with pytest.raises(ValueError, match=r"there are andrea-1m, "):
        preset("xyz")


@pytest.mark.parametrize(
    ("changes", "width"),
    [({}, 3072), ({"mlp_ratio": 2.0}, 1536), ({"mlp_dim": 5, "mlp_ratio": 2.0}, 5), ({"activation": "swiglu"}, 2048)],
)
def test_the_mlp_is_as_wide_as_ratio_or_dim_say(changes, width):
    assert ModelConfig(**changes).mlp_width == width


def test_swiglu_is_rounded_up_to_a_multiple_of_8():
    assert ModelConfig(d_model=100, n_head=1, activation="swiglu").mlp_width == 272  # 8/3 * 100 = 266.7


def test_a_model_that_learns_needs_no_configuration():
    assert RunConfig() == RunConfig(ModelConfig(), DataConfig(), OptimConfig(), TrainConfig())
