"""Goldens of llama.cpp: ids of 200 hard strings, and logits of small models in every precision, from files that interop/gguf.py wrote.

    pip install llama-cpp-python gguf        (compiles llama.cpp; some minutes)
    python tests/goldens/make_llama.py

writes llama_cpp.json beside this file; tests/test_interop.py compares. The suite does not need llama.cpp.
"""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

from andrea.checkpoint import Run
from andrea.config import ModelConfig, RunConfig, TrainConfig
from andrea.data.tokenizer import Tokenizer, train_bpe
from andrea.interop.gguf import PRECISIONS, export_gguf
from andrea.model import Transformer

SHAPE = {"context": 64, "n_layer": 2, "n_head": 2, "d_model": 64, "mlp_dim": 96}
SCRIPTS = [
    "The quick brown fox jumps over 13 lazy dogs; it's 7:05 pm, isn't it?",
    "Victor jagt zwölf Boxkämpfer quer über den großen Sylter Deich",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "Θέλει αρετή και τόλμη η ελευθερία",
    "色は匂へど散りぬるを 我が世誰ぞ常ならむ",
    "天地玄黃 宇宙洪荒 日月盈昃",
    "다람쥐 헌 쳇바퀴에 타고파",
    "نص حكيم له سر قاطع وذو شأن عظيم ١٢٣٤٥",
    "दुनिया में किसी १२३ को",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "¡Qué tal! ½ ¾ Ⅷ ² ①②③ № ™ € £ ¥",
    "def f(x: int) -> str:\n    return f'{x!r}'  # done\n\n\nclass A:\n\tpass\n",
    'https://example.org/a/b?c=d&e=%20#f <div class="x">&amp;</div>',
    "I'LL we've they'd I'm 'tis o'clock ''s 's'd 're've",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 🏽 🎉🎉 é e\u0301 \u200b\u200d\ufeff",
    "a\u00a0b\u2003c\u3000d\u2028e\u2029f\x85g\x1ch\x1di",
]
SPACES = [
    "",
    " ",
    "  ",
    "   x",
    "x   ",
    " \n",
    "\n \n",
    "a\r\nb\rc\n",
    "\t\n ",
    "\n\n\n",
    " \u3000 x",
    "\u3000\u3000",
    "x \t y",
    "\x00",
    "\x00\x00 \x01",
    " " * 200,
]
SPECIAL = [
    "<|endoftext|>",
    "a<|endoftext|>b",
    " <|endoftext|> ",
    "hello !",
    "<s>",
    "[INST]",
    "<0x0A>",
    "▁a",
    "Ġa",
    "\ufffd",
    "\U0010ffff\ue000",
]


def strings() -> list[str]:
    """200 of them: whole lines, their pieces, what joins them oddly, white space, what looks special."""
    cut = [line[at : at + 9] for line in SCRIPTS for at in range(0, len(line) - 4, 3)]
    joined = [
        a[-6:] + between + b[:6]
        for a, b, between in zip(SCRIPTS, SCRIPTS[1:] + SCRIPTS[:1], ["", " ", "  ", "'s", "1", "\n"] * 3, strict=False)
    ]
    return [*SCRIPTS, *SPACES, *SPECIAL, *joined, *cut][:200]


def run_of(tokens: Tokenizer, positions: str, tied: bool = True) -> Run:
    """A model whose weights are sines of their number, so that no file need keep them; nothing is symmetric, nothing is 0 or 1."""
    built = Transformer(ModelConfig(vocab_size=tokens.vocab_size, positions=positions, tied=tied, **SHAPE)).eval()
    with torch.no_grad():
        for n, (name, p) in enumerate(built.named_parameters(), 1):
            wave = torch.sin(torch.arange(p.numel(), dtype=torch.float64) * (0.7548776662466927 + 0.1 * n)).reshape(p.shape)
            p.copy_(("gamma" in name) + wave * (0.15 if p.dim() == 2 else 0.3))
    return Run(Path("small"), RunConfig(built.config, train=TrainConfig(batch_tokens=64)), {}, {}, tokens, built, 0)


def main() -> None:
    from llama_cpp import Llama  # here: test_interop.py takes the models from this file

    texts = strings()
    assert len(texts) == 200
    tokens = train_bpe(["\n".join(SCRIPTS * 4 + SPACES * 9 + texts * 2)], 257 + 500)
    prompt = [tokens.separator, *tokens.encode(SCRIPTS[0])[:20]]
    golden: dict = {"llama_cpp_python": version("llama_cpp_python"), "shape": SHAPE, "prompt": prompt, "strings": texts, "logits": {}}
    golden["merges"] = tokens.to_json()["model"]["merges"]
    with tempfile.TemporaryDirectory() as folder:
        for positions, tied in (("learned", True), ("learned", False), ("rotary", True)):
            run = run_of(tokens, positions, tied)
            ours = run.model(torch.tensor([prompt]))[0, -1].detach()
            for precision in PRECISIONS:
                path = Path(folder) / f"{positions}-{tied}-{precision}.gguf"
                export_gguf(run, path, precision)
                theirs = Llama(str(path), n_ctx=SHAPE["context"], n_threads=1, logits_all=True, verbose=False, type_k=0, type_v=0)
                theirs.eval(prompt)
                last = torch.tensor(theirs.scores[len(prompt) - 1])
                golden["logits"][f"{positions} {'tied' if tied else 'untied'} {precision}"] = [round(x, 6) for x in last[::7].tolist()]
                print(
                    positions, tied, precision, f"largest difference {(last - ours).abs().max():.2e} of logits up to {ours.abs().max():.2f}"
                )
                if precision == "f32":
                    ids = [theirs.tokenize(text.encode(), add_bos=False, special=False) for text in texts]
                    opened = theirs.tokenize(b"x", add_bos=True)
                    assert opened == [tokens.separator, *tokens.encode("x")], opened
                    wrong = [text for text, one in zip(texts, ids, strict=True) if one != tokens.encode(text)]
                    print(f"  {len(texts) - len(wrong)} of {len(texts)} strings to the same ids", wrong)
                    golden["ids"] = ids
                theirs.close()
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":"))
    Path(__file__).with_name("llama_cpp.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
