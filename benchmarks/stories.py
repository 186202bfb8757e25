"""How well a run has learned the built-in stories: bits per byte, known words in its samples, choices on pairs.

andrea train --corpus stories --language sv --steps 1200 --out runs/sv
python benchmarks/stories.py runs/sv

A choice is right where the whole text of the right one has the higher probability.
"""

import argparse
import re
from collections import defaultdict
from itertools import islice
from pathlib import Path

import torch

from andrea.checkpoint import Run, load
from andrea.data.stories import pairs, stories
from andrea.evaluate import evaluate
from andrea.infer.generate import complete
from andrea.infer.sample import Sampling


@torch.no_grad()
def log_probability(run: Run, text: str) -> float:
    """Nats of a document that begins so, of its last tokens where the context does not hold all."""
    ids = [run.tokenizer.separator, *run.tokenizer.encode(text)][-run.model.config.context - 1 :]
    row = torch.tensor([ids])
    return -run.model(row[:, :-1], row[:, 1:]).double().sum().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.8)
    args = parser.parse_args()
    run = load(args.run)
    language = run.config.data.language or "en"
    result = evaluate(run.model, run.open_data().val, run.tokenizer)
    print(f"step {run.step}: {result.bits_per_byte:.4f} bits per byte, perplexity {result.perplexity:.3f} per token")
    known = {word for story in islice(stories(0, language), 5_000) for word in re.findall(r"\w+", story.text)}
    for seed in range(args.samples):
        text = complete(run, "", Sampling(temperature=args.temperature, seed=seed, max_tokens=1_000, ignore_separator=True))[0].text[:2_000]
        words = re.findall(r"\w+", text)
        unknown = sorted({word for word in words if word not in known})
        print(f"\nsample {seed}: {sum(word in known for word in words)} of {len(words)} words are known; not: {unknown}\n{text}")
    right = defaultdict(list)
    for pair in pairs(1, args.pairs, language):
        right[pair.kind].append(log_probability(run, pair.right) > log_probability(run, pair.wrong))
    print("\nright choices:", {kind: f"{sum(found)} of {len(found)}" for kind, found in sorted(right.items())})


if __name__ == "__main__":
    main()
