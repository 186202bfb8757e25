"""Models as the files of other programs. transformers reads ours here; llama.cpp did once, and goldens/make_llama.py kept what it gave."""

import copy
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from goldens.make_llama import run_of
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from andrea import load
from andrea.checkpoint import Run
from andrea.cli import app, main
from andrea.config import ModelConfig, RunConfig, TrainConfig
from andrea.data.tokenizer import BPETokenizer, byte_tokenizer, char_tokenizer, unspell
from andrea.files import Damaged
from andrea.infer import Sampling, complete, prompt_ids
from andrea.interop import export_gguf, export_hf, import_hf
from andrea.interop.shape import tensors
from andrea.kernels import layer_norm, rotary
from andrea.model import Transformer
from andrea.training.history import list_runs
from andrea.training.start import resume

GOLDEN = json.loads((Path(__file__).parent / "goldens" / "llama_cpp.json").read_text(encoding="utf-8"))
STRINGS = GOLDEN["strings"]
HARD = ["hello !", "   x", "a\r\nb\rc\n", "\t\n ", "", "\x00", "e\u0301", "é", "🎉", "🏽", " " * 10_000, "a<|endoftext|>b"]
SHAPE = {"context": 48, "n_layer": 2, "n_head": 3, "d_model": 42}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bpe() -> BPETokenizer:
    return BPETokenizer([(unspell(left), unspell(right)) for left, right in GOLDEN["merges"]])


def small_run(tokenizer, **changes) -> Run:
    """A model in which nothing is 0, 1 or symmetric: what is left out, swapped or turned shows in the logits."""
    torch.manual_seed(5)
    model = Transformer(ModelConfig(**{"vocab_size": tokenizer.vocab_size, **SHAPE, **changes})).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(0.2 * torch.randn(p.shape) + ("gamma" in name))
    return Run(Path("small"), RunConfig(model.config, train=TrainConfig(batch_tokens=480)), {}, {}, tokenizer, model, 0)


def theirs(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


def logits(model, ids) -> torch.Tensor:
    with torch.no_grad():
        given = model(torch.tensor([ids]))
    return given if isinstance(given, torch.Tensor) else given.logits


def names_in(folder: Path) -> set[str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


# --- transformers reads ours --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "GPT2LMHeadModel"),
        ({"tied": False, "mlp_dim": 50}, "GPT2LMHeadModel"),
        ({"bias": False, "activation": "relu"}, "GPT2LMHeadModel"),
        ({"positions": "rotary"}, "GPTNeoXForCausalLM"),
        ({"positions": "rotary", "tied": False, "bias": False, "mlp_ratio": 3.0}, "GPTNeoXForCausalLM"),
    ],
)
def test_transformers_gives_the_logits_that_we_give(bpe, tmp_path, changes, kind):
    """Both compute in float32; a logit here is a sum of products of about 1, and 1e-5 of the largest is what their order changes."""
    run = small_run(bpe, **changes)
    export_hf(run, tmp_path / "out")
    other = theirs(tmp_path / "out")
    assert type(other).__name__ == kind
    for text in ("def f(x):", "Съешь же ещё", ""):
        ids = (prompt_ids(bpe, text) * 48)[:48]
        ours = logits(run.model, ids)
        assert (ours - logits(other, ids)).abs().max() < 1e-5 * ours.abs().max()


def test_a_square_matrix_that_is_not_turned_shows(bpe, tmp_path):
    run = small_run(bpe)
    export_hf(run, tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    name = "transformer.h.1.attn.c_proj.weight"
    assert torch.equal(stored[name].T, run.model.blocks[1].attn.out.weight)
    stored[name] = stored[name].T.contiguous()
    save_file(stored, tmp_path / "out" / "model.safetensors", {"format": "pt"})
    ids = list(range(40))
    assert (logits(run.model, ids) - logits(theirs(tmp_path / "out"), ids)).abs().max() > 0.1


def test_the_configuration_says_what_the_model_is(bpe, tmp_path):
    export_hf(small_run(bpe, dropout=0.25), tmp_path / "out")
    told = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    wanted = {
        "n_positions": 48,
        "n_embd": 42,
        "n_layer": 2,
        "n_head": 3,
        "n_inner": 168,
        "vocab_size": bpe.vocab_size,
        "model_type": "gpt2",
    }
    wanted |= dict.fromkeys(("bos_token_id", "eos_token_id"), bpe.separator) | {"tie_word_embeddings": True, "layer_norm_epsilon": 1e-5}
    wanted |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.25) | {"activation_function": "gelu_new"}
    assert wanted.items() <= told.items()
    config = theirs(tmp_path / "out").config
    assert all(getattr(config, name) == value for name, value in wanted.items())


def test_a_tied_matrix_is_written_once_and_every_reader_finds_it(bpe, tmp_path):
    run = small_run(bpe)
    export_hf(run, tmp_path / "out")
    assert "transformer.wte.weight" in names_in(tmp_path / "out") and "lm_head.weight" not in names_in(tmp_path / "out")
    bare = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(bare["transformer.wte.weight"], run.model.token_embed.weight)
    other = theirs(tmp_path / "out")
    assert other.lm_head.weight.data_ptr() == other.transformer.wte.weight.data_ptr()
    import_hf(tmp_path / "out", tmp_path / "back")
    back = load(tmp_path / "back").model
    assert back.unembed.weight is back.token_embed.weight


def test_half_precision_takes_half_the_room(bpe, tmp_path):
    run = small_run(bpe)
    sizes = {}
    for precision, bits in (("f32", 0), ("f16", 11), ("bf16", 8)):
        export_hf(run, tmp_path / precision, precision)
        sizes[precision] = (tmp_path / precision / "model.safetensors").stat().st_size
        stored = load_file(tmp_path / precision / "model.safetensors")["transformer.wte.weight"].float()
        if bits:
            assert ((stored - run.model.token_embed.weight).abs() <= run.model.token_embed.weight.abs() * 2.0**-bits + 1e-7).all()
    assert 1.9 < sizes["f32"] / sizes["f16"] < 2 and 1.9 < sizes["f32"] / sizes["bf16"] < 2


@pytest.mark.parametrize("kind", ["bpe", "char", "byte"])
def test_their_tokenizer_gives_our_ids_and_our_text(bpe, tmp_path, kind):
    from transformers import AutoTokenizer

    tokenizer = {"bpe": bpe, "byte": byte_tokenizer(), "char": char_tokenizer([*STRINGS, *HARD])}[kind]
    export_hf(small_run(tokenizer), tmp_path / "out")
    other = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (other.bos_token_id, other.eos_token_id) == (tokenizer.separator, tokenizer.separator)
    assert len(STRINGS) == 200 and "a<|endoftext|>b" in STRINGS
    for text in (*STRINGS, *HARD):
        ids = other(text).input_ids
        assert ids == prompt_ids(tokenizer, text), text  # opened by the separator
        assert other(text, add_special_tokens=False).input_ids == tokenizer.encode(text)
        assert other.decode(ids, skip_special_tokens=True) == text


def test_transformers_speaks_as_we_do(bpe, tmp_path):
    run = small_run(bpe)
    export_hf(run, tmp_path / "out")
    ids = prompt_ids(bpe, "def f(")
    said = theirs(tmp_path / "out").generate(torch.tensor([ids]), do_sample=False, max_new_tokens=20, pad_token_id=bpe.separator)
    ours = complete(run, "def f(", Sampling(temperature=0, max_tokens=20))[0]
    assert said[0, len(ids) :].tolist() == list(ours.ids)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"norm": "post"}, "norm=post"),
        ({"norm": "none"}, "norm=none"),
        ({"residual": False}, "residual=False"),
        ({"activation": "swiglu"}, "activation=swiglu"),
    ],
)
@pytest.mark.parametrize("export", [export_hf, export_gguf])
def test_what_the_formats_cannot_say_is_refused_by_name(bpe, tmp_path, changes, named, export):
    with pytest.raises(ValueError, match=f"a model with {named} cannot be exported"):
        export(small_run(bpe, **changes), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("export", [export_hf, export_gguf])
def test_nothing_is_written_over_and_an_unknown_precision_is_refused(bpe, tmp_path, export):
    run = small_run(bpe)
    with pytest.raises(ValueError, match="precision 'int3' is not one of f32, f16"):
        export(run, tmp_path / "out", "int3")
    export(run, tmp_path / "deeper" / "out")
    with pytest.raises(FileExistsError, match="exists already"):
        export(run, tmp_path / "deeper" / "out")


@pytest.mark.parametrize("export", [export_hf, export_gguf])
def test_an_export_that_fails_leaves_nothing(bpe, tmp_path, export, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        export(small_run(bpe), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("export", [export_hf, export_gguf])
def test_an_export_leaves_alone_what_lies_beside_it(bpe, tmp_path, export):
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "notes.txt").write_text("precious", encoding="utf-8")
    export(small_run(bpe), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.partial"]
    assert (tmp_path / "out.partial" / "notes.txt").read_text(encoding="utf-8") == "precious"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
@pytest.mark.parametrize("export", [export_hf, export_gguf])
def test_an_export_without_room_says_so_and_leaves_nothing(bpe, tmp_path, export):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = small_run(bpe)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match=r"out could not be written whole|out\..*partial"):
            export(run, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


# --- we read theirs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(bpe, tmp_path) -> Path:
    export_hf(small_run(bpe), tmp_path / "hf")
    return tmp_path / "hf"


def change_json(path: Path, **changes) -> None:
    """Set fields; None removes one."""
    stored = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({name: value for name, value in stored.items() if value is not None}), encoding="utf-8")


def change_weights(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    stored = {name: t.clone() for name, t in load_file(path).items()}
    save_file(change(stored) or stored, path, {"format": "pt"})


@pytest.mark.parametrize("changes", [{}, {"tied": False, "activation": "relu", "mlp_dim": 50, "dropout": 0.5}])
def test_what_was_exported_comes_back_bit_for_bit(bpe, tmp_path, changes):
    run = small_run(bpe, **changes)
    export_hf(run, tmp_path / "hf")
    back = load(import_hf(tmp_path / "hf", tmp_path / "back"))
    assert replace(back.config.model, mlp_dim=None) == replace(run.config.model, mlp_dim=None)
    assert back.config.model.mlp_width == run.config.model.mlp_width
    wanted, found = dict(tensors(run.model)), dict(tensors(back.model))
    assert all(torch.equal(wanted[name], found[name]) for name in wanted | found)
    assert back.tokenizer.merges == bpe.merges
    assert complete(back, "def ", Sampling(seed=1)) == complete(run, "def ", Sampling(seed=1))


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_characters_and_bytes_come_back_too(tmp_path, kind):
    tokenizer = {"byte": byte_tokenizer(), "char": char_tokenizer(["hello", "é🎉\n", "<|endoftext|>"])}[kind]
    export_hf(small_run(tokenizer), tmp_path / "hf")
    back = load(import_hf(tmp_path / "hf", tmp_path / "back")).tokenizer
    assert back.kind == kind and back.pieces == tokenizer.pieces


def gpt2_of_transformers(folder: Path, text: Path, dtype=torch.float32):
    """A GPT-2 and a tokenizer of theirs, numbered their way: the separator first, then the bytes in another order."""
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<eot>"], initial_alphabet=letters, show_progress=False)
    learner.train([str(text)], trainer)
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=403, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, initializer_range=0.3
    )
    model = GPT2LMHeadModel(config).eval()
    model.to(dtype).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=learner, eos_token="<eot>").save_pretrained(folder)
    return model.float(), learner


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpt2_of_transformers_speaks_here_with_its_own_tokenizer(tmp_path, text_file, dtype):
    """Ours counts the ids anew; the text is the same, the padded rows (400 to 402) are gone, and the rest of the logits are theirs."""
    model, learner = gpt2_of_transformers(tmp_path / "hf", text_file, dtype)
    run = load(import_hf(tmp_path / "hf", tmp_path / "run"))
    assert run.tokenizer.vocab_size == 400 == run.config.model.vocab_size
    number = {
        id: run.tokenizer.separator if id == 0 else run.tokenizer.pieces.index(b"".join(map(unspell, name)))
        for name, id in learner.get_vocab().items()
    }
    order = torch.tensor([number[id] for id in range(400)])
    for text in ("def add_argument(self):", "naïve 🎉", *STRINGS[:20]):
        ids = learner.encode(text, add_special_tokens=False).ids[:60]
        assert [number[id] for id in ids] == run.tokenizer.encode(text)[:60]
        if ids:
            wanted = logits(model, ids)[..., :400]
            assert (logits(run.model, [number[id] for id in ids])[..., order] - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_an_imported_run_is_heard_traced_and_listed_but_not_trained_on(exported, tmp_path):
    from andrea import trace

    out = import_hf(exported, tmp_path / "runs" / "theirs")
    run = load(out)
    assert complete(run, "x", Sampling(max_tokens=9, ignore_separator=True))[0].finish == "length"
    assert trace(run.model, torch.tensor([prompt_ids(run.tokenizer, "def f")]))
    with pytest.raises(ValueError, match=r"was imported from .*hf and has no training to go on with"):
        next(resume(out))
    with pytest.raises(ValueError, match=r"was imported and has no text of its own; name one: andrea eval .* FILE, andrea quantize"):
        run.open_data()
    (tmp_path / "other.txt").write_text("def add(a, b):\n    return a + b\n" * 40, encoding="utf-8")
    told = CliRunner().invoke(app, ["quantize", str(out), str(tmp_path / "other.txt"), "--json"])
    assert told.exit_code == 0 and json.loads(told.stdout)["before"]["targets"] > 20
    (tmp_path / "other.jsonl").write_text('{"body": "def add(a, b): return a + b"}\n' * 40, encoding="utf-8")
    told = CliRunner().invoke(app, ["quantize", str(out), str(tmp_path / "other.jsonl"), "--field", "body", "--to", "bf16"])
    assert told.exit_code == 0, told.exception
    (tmp_path / "short.txt").write_text("def", encoding="utf-8")
    told = CliRunner().invoke(app, ["quantize", str(out), str(tmp_path / "short.txt")])
    assert isinstance(told.exception, ValueError) and "tokens; wanted at least 11" in str(told.exception)
    assert [row["state"] for row in list_runs(tmp_path / "runs")] == ["imported"]
    with pytest.raises(FileExistsError, match="a run is never overwritten"):
        import_hf(exported, out)


@pytest.mark.parametrize("around", ["_orig_mod.", "module.", "module._orig_mod."])
def test_names_that_a_wrapper_lengthened_are_known(exported, tmp_path, around):
    import_hf(exported, tmp_path / "plain")
    change_weights(exported, lambda stored: {around + name: t for name, t in stored.items()})
    import_hf(exported, tmp_path / "wrapped")
    plain, wrapped = (load(tmp_path / name).model.state_dict() for name in ("plain", "wrapped"))
    assert all(torch.equal(plain[name], wrapped[name]) for name in plain | wrapped)


def test_old_files_without_the_first_word_and_with_masks_are_known(exported, tmp_path):
    def older(stored):
        masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 48, 48, dtype=torch.uint8) for i in range(2)}
        return {name.removeprefix("transformer."): t for name, t in stored.items()} | masks | {"h.0.attn.masked_bias": torch.tensor(-1e4)}

    import_hf(exported, tmp_path / "plain")
    change_weights(exported, older)
    assert load(import_hf(exported, tmp_path / "old")).model.state_dict().keys() == load(tmp_path / "plain").model.state_dict().keys()


def test_the_tied_matrix_may_have_either_name_or_both_but_not_two_contents(exported, tmp_path):
    def rename(stored):
        stored["lm_head.weight"] = stored.pop("transformer.wte.weight")

    wanted = load(import_hf(exported, tmp_path / "1")).model.unembed.weight
    change_weights(exported, rename)
    assert torch.equal(load(import_hf(exported, tmp_path / "2")).model.unembed.weight, wanted)
    change_weights(exported, lambda stored: stored | {"transformer.wte.weight": stored["lm_head.weight"].clone()})
    assert torch.equal(load(import_hf(exported, tmp_path / "3")).model.unembed.weight, wanted)
    change_weights(exported, lambda stored: stored | {"transformer.wte.weight": stored["lm_head.weight"] + 1})
    with pytest.raises(Damaged, match=r"tie_word_embeddings, but lm_head.weight is not wte.weight"):
        import_hf(exported, tmp_path / "4")
    change_weights(exported, lambda stored: {n: t for n, t in stored.items() if n not in ("lm_head.weight", "transformer.wte.weight")})
    with pytest.raises(Damaged, match=r"missing \['wte.weight'\]"):
        import_hf(exported, tmp_path / "5")


def without(name):
    return lambda stored: {n: t for n, t in stored.items() if n != name}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (without("transformer.h.1.mlp.c_fc.bias"), r"missing \['h.1.mlp.c_fc.bias'\]"),
        (lambda s: s | {"transformer.h.2.ln_1.weight": torch.ones(42)}, r"unknown \['h.2.ln_1.weight'\]"),
        (lambda s: s | {"_orig_mod.transformer.ln_f.bias": torch.ones(42)}, "has 'ln_f.bias' twice"),
        (lambda s: s | {"transformer.ln_f.bias": torch.ones(42, dtype=torch.int8)}, "in I8; wanted F32, F16 or BF16"),
        (lambda s: s | {"transformer.ln_f.bias": torch.ones(43)}, r"ln_f.bias of \(43,\), which does not fit"),
        (lambda s: s | {"transformer.wte.weight": torch.ones(300, 42)}, r"wte.weight of \(300, 42\); the tokenizer has ids up to"),
        (lambda s: {"transformer.ln_f.bias": torch.ones(42)}, "has 1 tensors, too few for n_layer=2"),
    ],
)
def test_weights_that_are_not_the_models_are_refused(exported, tmp_path, change, word):
    change_weights(exported, change)
    with pytest.raises(ValueError, match=word):
        import_hf(exported, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model_type": "llama"}, "of type 'llama'; gpt2 is what can be imported"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon=1e-06; ANDREA's models have 1e-05"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"activation_function": "gelu"}, "activation_function='gelu'; ANDREA's models have gelu_new or"),
        ({"activation_function": ["gelu"]}, "activation_function="),
        ({"attn_pdrop": 0.5}, "different dropouts, embd_pdrop, attn_pdrop, resid_pdrop"),
        ({"n_head": 5}, "d_model=42 is not a multiple of n_head=5"),
        ({"n_layer": 10**9}, "too few for n_layer=1000000000"),
        ({"n_layer": None}, "n_layer is not there"),
        ({"n_inner": "wide"}, "mlp_dim='wide' is str"),
        ({"tie_word_embeddings": False}, r"missing \['lm_head.weight'\]"),
        ({"eos_token_id": 99_999}, "it has no token 99999, the eos_token_id"),
        ({"attn_pdrop": [0.1]}, "different dropouts"),
    ],
)
def test_configurations_that_are_not_ours_are_refused_by_name(exported, tmp_path, changes, word):
    change_json(exported / "config.json", **changes)
    with pytest.raises(ValueError, match=word):
        import_hf(exported, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda s: s.update(normalizer={"type": "NFC"}), "another kind of tokenizer .*NFC"),
        (lambda s: s["pre_tokenizer"].update(add_prefix_space=True), "another kind of tokenizer .*add_prefix_space"),
        (lambda s: s["model"].update(type="WordPiece"), "another kind of tokenizer .*WordPiece"),
        (lambda s: s["model"].update(dropout=0.1), "another kind of tokenizer .*dropout"),
        (lambda s: s.update(pre_tokenizer=None), "another kind of tokenizer"),
        (lambda s: s["model"]["vocab"].update({"<pad>": 9_999}), "other tokens than the bytes, what its merges make.*<pad>"),
        (lambda s: s["model"]["merges"].append(["never", "seen"]), "is damaged: a merge joins a piece that no merge before it makes"),
        (lambda s: s["model"]["merges"].append("three of them"), "is damaged"),
        (lambda s: s["model"]["vocab"].update({"!": 7}), "two with one id"),
        (lambda s: s["model"]["vocab"].update({"!": "7"}), "two with one id"),
        (lambda s: s["model"]["vocab"].update({"!": -1}), "an id that is none"),
        (lambda s: s["model"]["vocab"].update({"!": 2**70}), "an id that is none"),
        (lambda s: s.update(added_tokens=[7]), "is damaged"),
        (lambda s: s.update(added_tokens=[{"content": 7, "id": 9_999}]), "other tokens than the bytes"),
        (lambda s: s["model"].pop("merges"), "merges is not there"),
    ],
)
def test_tokenizers_of_another_kind_are_refused(exported, tmp_path, change, word):
    path = exported / "tokenizer.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    change(stored)
    path.write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(ValueError, match=word):
        import_hf(exported, tmp_path / "out")


def test_a_folder_of_another_kind_is_refused(exported, tmp_path):
    with pytest.raises(ValueError, match=r"is not a folder of transformers: it has no config.json"):
        import_hf(tmp_path, tmp_path / "out")
    (exported / "tokenizer.json").rename(tmp_path / "kept.json")
    with pytest.raises(ValueError, match=r"tokenizer.json is not there; AutoTokenizer"):
        import_hf(exported, tmp_path / "out")


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("payload-ran"),))


def test_no_pickle_is_ever_opened(exported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        kept = (exported / name).read_bytes()
        (exported / name).write_bytes(pickle.dumps(Payload()))
        with pytest.raises(Damaged, match=name):
            import_hf(exported, tmp_path / "out")
        (exported / name).write_bytes(kept)
    (exported / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no model.safetensors$"):
        import_hf(exported, tmp_path / "out")
    torch.save(Payload(), exported / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin is a pickle, which may run any program"):
        import_hf(exported, tmp_path / "out")
    assert not (tmp_path / "payload-ran").exists() and not (tmp_path / "out").exists()


def test_a_model_in_parts_is_put_together(exported, tmp_path):
    stored = load_file(exported / "model.safetensors")
    names = sorted(stored)
    import_hf(exported, tmp_path / "whole")
    (exported / "model.safetensors").unlink()
    for n, part in enumerate((names[:9], names[9:]), 1):
        save_file({name: stored[name] for name in part}, exported / f"model-0000{n}-of-00002.safetensors")
    whole, parts = (load(tmp_path / "whole"), load(import_hf(exported, tmp_path / "parts")))
    assert all(torch.equal(t, parts.model.state_dict()[name]) for name, t in whole.model.state_dict().items())


# --- GGUF ---------------------------------------------------------------------------------------------------------------------------


def read_gguf(path: Path):
    """Fields and tensors, these in float32 as whoever reads the file gets them."""
    from gguf import GGUFReader, quants

    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return (
        fields,
        {
            t.name: torch.from_numpy(quants.dequantize(t.data, t.tensor_type).copy()).reshape(*reversed(t.shape.tolist()))
            for t in reader.tensors
        },
        {t.name: t.tensor_type.name for t in reader.tensors},
    )


ADDRESSES = {  # the reverse of what gguf.py does, by hand
    "token_embd.weight": "token_embed.weight",
    "position_embd.weight": "position_embed.weight",
    "output_norm.weight": "final_norm.gamma",
    "output_norm.bias": "final_norm.beta",
    "output.weight": "unembed.weight",
    "attn_norm.weight": "attn_norm.gamma",
    "attn_norm.bias": "attn_norm.beta",
    "attn_qkv": "attn.qkv",
    "attn_output": "attn.out",
    "ffn_norm.weight": "mlp_norm.gamma",
    "ffn_norm.bias": "mlp_norm.beta",
    "ffn_up": "mlp.up",
    "ffn_down": "mlp.down",
}


def put_into(model: Transformer, stored: dict[str, torch.Tensor]) -> Transformer:
    model = copy.deepcopy(model)
    state = model.state_dict()
    for name, t in stored.items():
        part = name.split(".", 2)[2] if name.startswith("blk.") else name
        ours = ADDRESSES.get(part) or ADDRESSES[part.rsplit(".", 1)[0]] + "." + part.rsplit(".", 1)[1]
        state[f"blocks.{name.split('.')[1]}.{ours}" if name.startswith("blk.") else ours].copy_(t)
    return model


@pytest.mark.parametrize("case", GOLDEN["logits"])
def test_llama_cpp_gives_the_logits_that_we_give(bpe, tmp_path, case):
    """llama.cpp read the file; its logits against ours with the weights that are in the file.

    Its GELU comes from a float16 table, off by up to 2^-11 of a value: 1e-3 of the largest logit. f16 and bf16 round activations too
    (2^-11, 2^-8), q8_0 and q4_0 multiply activations of 8 bits (1/254 of the largest of 32).
    """
    positions, tied, precision = case.split()
    run = run_of(bpe, positions, tied == "tied")
    export_gguf(run, tmp_path / "out.gguf", precision)
    _, stored, _ = read_gguf(tmp_path / "out.gguf")
    wanted = torch.tensor(GOLDEN["logits"][case])
    ours = logits(put_into(run.model, stored), GOLDEN["prompt"])[0, -1, ::7]
    assert (ours - wanted).abs().max() < TOLERANCES[precision] * wanted.abs().max()


TOLERANCES = {"f32": 1e-3, "f16": 2e-3, "bf16": 1e-2, "q8_0": 2e-2, "q4_0": 2e-2}


def test_llama_cpp_gives_our_ids_for_200_strings(bpe):
    assert len(STRINGS) == 200
    assert GOLDEN["ids"] == [bpe.encode(text) for text in STRINGS]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_gguf_file_says_what_the_model_is(bpe, tmp_path, positions):
    run = small_run(bpe, positions=positions, d_model=96, mlp_dim=200)
    export_gguf(run, tmp_path / "a.gguf", "q4_0")
    fields, stored, kinds = read_gguf(tmp_path / "a.gguf")
    arch = {"learned": "gpt2", "rotary": "gptneox"}[positions]
    wanted = {"context_length": 48, "embedding_length": 96, "feed_forward_length": 200, "block_count": 2, "attention.head_count": 3}
    wanted |= {"attention.layer_norm_epsilon": pytest.approx(layer_norm.EPSILON)}
    if positions == "rotary":
        wanted |= {"rope.dimension_count": 32, "rope.freq_base": rotary.BASE, "use_parallel_residual": False}
    assert fields["general.architecture"] == arch
    assert {name: fields[f"{arch}.{name}"] for name in wanted} == wanted
    tokens = {name.removeprefix("tokenizer.ggml."): value for name, value in fields.items() if name.startswith("tokenizer.ggml.")}
    assert (tokens["model"], tokens["pre"], tokens["add_bos_token"]) == ("gpt2", "gpt-2", True)
    assert tokens["bos_token_id"] == tokens["eos_token_id"] == bpe.separator
    assert tokens["merges"] == [" ".join(pair) for pair in GOLDEN["merges"]]
    assert len(tokens["tokens"]) == bpe.vocab_size and tokens["token_type"] == [1] * bpe.separator + [3]
    assert kinds["blk.0.attn_qkv.weight"] == "Q4_0" and kinds["token_embd.weight"] == "Q8_0"
    assert kinds["blk.1.ffn_down.weight"] == "F16"  # rows of 200
    assert {kinds[name] for name, t in stored.items() if t.dim() == 1 or name.startswith("position")} == {"F32"}
    assert ("output.weight" in stored) == (positions == "rotary")


@pytest.mark.parametrize(
    ("precision", "step"), [("f32", 0.0), ("f16", 2.0**-11), ("bf16", 2.0**-8), ("q8_0", 0.563 / 127), ("q4_0", 1.005 / 8)]
)
def test_a_precision_takes_no_more_than_it_must(bpe, tmp_path, precision, step):
    """Within half a step of the largest of its 32, a step being 1/127 or 1/8 of it; q4_0 has 7 steps to the other side and clips one there.
    The scale is float16, so that 127 or 8 of its steps are off by up to 127 or 8 times 2^-11 of one."""
    run = small_run(bpe, d_model=96)
    export_gguf(run, tmp_path / "a.gguf", precision)
    _, stored, _ = read_gguf(tmp_path / "a.gguf")
    for name, t in stored.items():
        kept = run.model.state_dict()[{"blk.1.attn_qkv.weight": "blocks.1.attn.qkv.weight"}.get(name, "token_embed.weight")]
        if name in ("blk.1.attn_qkv.weight", "token_embd.weight"):
            largest = kept.unflatten(1, (-1, 32)).abs().amax(-1, keepdim=True).expand(-1, -1, 32).flatten(1)
            assert ((t - kept).abs() <= step * largest).all()
            assert precision == "f32" or not torch.equal(t, kept)


def test_what_llama_cpp_has_not_is_refused(bpe, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="a model with activation=relu cannot be exported: the format has activation=gelu only"):
        export_gguf(small_run(bpe, activation="relu"), tmp_path / "out")
    for tokenizer, word in ((byte_tokenizer(), "by byte"), (char_tokenizer(["ab"]), "by char"), (BPETokenizer([]), "by bytes")):
        with pytest.raises(ValueError, match=f"a tokenizer {word} cannot be exported: .*--to hf can say it"):
            export_gguf(small_run(tokenizer), tmp_path / "out")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"pip install 'andrea\[gguf\]'"):
        export_gguf(small_run(bpe), tmp_path / "out")


# --- the command line ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def andrea(tmp_path, monkeypatch, capsys):
    """The command in this process: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["andrea", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_the_commands_export_and_import(finished_run, text_file, tmp_path, andrea):
    code, out, _ = andrea("export", finished_run, "--to", "hf")
    assert code == 0 and "small-1-hf" in out and "next, in Python" in out
    code, out, _ = andrea("export", finished_run, "--to", "gguf", "--at", "last", "--out", "deep/a.gguf")
    assert code == 0 and "next: llama-completion -m deep/a.gguf" in out
    code, out, _ = andrea("export", finished_run, "--to", "gguf", "--precision", "q8_0", "--json")
    told = json.loads(out)
    assert (code, told["to"], told["precision"], told["path"]) == (0, "gguf", "q8_0", "small-1-q8_0.gguf")
    assert told["bytes"] == (tmp_path / "small-1-q8_0.gguf").stat().st_size
    code, out, _ = andrea("import", "small-1-hf", "--out", "runs/back", "--json")
    assert code == 0 and json.loads(out)["context"] == 32
    assert "next: andrea generate back-2" in andrea("import", "small-1-hf", "--out", "back-2")[1]
    code, out, _ = andrea("runs", "back")
    assert code == 0 and f"imported from {Path('small-1-hf').resolve()}; there is no record of its training" in out
    assert "d_model 32, context 32, vocab_size 321, gelu, learned positions" in out
    code, out, _ = andrea("runs", "back", "--json")
    assert (json.loads(out)["model"]["n_layer"], json.loads(out)["evaluations"]) == (2, [])
    code, out, _ = andrea("eval", "back", text_file, "--json")
    assert code == 0 and 1 < json.loads(out)["loss"] < 7
    said = [andrea("generate", run, "def", "--seed", 1, "--max-tokens", 9)[1] for run in (finished_run, "back")]
    assert said[0] == said[1] and said[0].startswith("def")
    for args, word in (
        (("export", finished_run, "--to", "onnx"), "--to onnx is neither hf nor gguf"),
        (("export", finished_run, "--to", "hf"), "small-1-hf exists already"),
        (("import", "nowhere", "--out", "runs/b"), "nowhere is not a folder of transformers"),
        (("train", "--resume", "runs/back"), "was imported from"),
        (("runs", "back", "--png", "back.png"), "has no record of a training that could be drawn"),
        (("eval", "back"), "has no text of its own"),
    ):
        code, _, error = andrea(*args)
        assert code == 2 and word in error, error
