"""Which depth holds what: probes of every station on stories whose words are known, and blocks skipped on pairs of sentences."""

from collections.abc import Callable, Iterator
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from andrea.claims.claim import Arm, Claim, Figures, Question, Task
from andrea.claims.grow import corpus, grown
from andrea.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from andrea.data.stories import Story, ambiguous, pairs, stories
from andrea.data.stories.grammar import Word
from andrea.data.tokenizer import Tokenizer
from andrea.insight.edit import edited, skip
from andrea.insight.probe import Examples, centre, probe
from andrea.insight.trace import trace
from andrea.model import Transformer

FRESH = 10**6  # the seed of stories that no model is trained on
STORIES, EXAMPLES, PAIRS = 800, 4000, 160
ABLE = 0.6  # of the pairs right, of which chance has half: what the model cannot do has no place in it
MIDDLE = 6.0  # the centre of what no layer holds: neither early nor late
Label = Callable[[Story, int, Word], Any]  # of a word, or None where it has none


class Skill(NamedTuple):
    """A task for a probe: which words have a label, read at the word itself or at the one before it."""

    group: str
    label: Label
    before: bool = False
    by_type: bool = False  # the label hangs on the word alone: test words must be new ones


def place(s: Story, i: int, w: Word) -> Any:
    """How many words into its sentence, from 7 on as 7."""
    n = 0
    while n < min(7, i) and not any(mark in s.text[s.words[i - n - 1].end : s.words[i - n].start] for mark in ".!?"):
        n += 1
    return n


def word_class(s: Story, i: int, w: Word) -> Any:
    return w.word_class if s.text[w.start : w.end].lower() in ambiguous("en") else None


def phrase(s: Story, i: int, w: Word) -> Any:
    """Of determiners and nouns: whether the noun phrase stands inside another."""
    return w.depth > 1 if w.word_class in ("determiner", "noun") and w.depth else None


def subject_number(s: Story, i: int, w: Word) -> Any:
    """Of what agrees with a subject across a noun of the other number; to be known before it comes."""
    return w.number if w.agrees and w.attractors else None


def meaning(s: Story, i: int, w: Word) -> Any:
    return w.meaning if w.word_class == "noun" and w.meaning else None


def fact(s: Story, i: int, w: Word) -> Any:
    """The colour that was stated and comes again; to be known before it comes."""
    return w.lemma if w.recalls is not None and s.facts[w.recalls].kind == "colour" else None


SKILLS = {
    "place in the sentence": Skill("early", place),
    "word class of ambiguous words": Skill("early", word_class),
    "inner noun phrase": Skill("middle", phrase),
    "number of a far subject": Skill("middle", subject_number, before=True),
    "meaning of new nouns": Skill("late", meaning, by_type=True),
    "fact recalled": Skill("late", fact, before=True),
}
GROUPS = ("early", "middle", "late")


def measure(task: Task, arm: Arm) -> Figures:
    found, model = grown(task.config, task.seed, arm.build)
    tokenizer = corpus(task.config.data, task.config.model.vocab_size).data.tokenizer
    told = list(islice(stories(FRESH + task.seed, "en"), STORIES))
    probes = {
        name: [asdict_of(read) for read in probe(examples, SKILLS[name].by_type, task.seed)]
        for name, examples in sets(model, tokenizer, told, task.seed)
    }
    return {**found, "probes": probes, **behaviour(model, tokenizer, task.seed)}


def asdict_of(read: Any) -> list[float]:
    return [read.accuracy, read.control, read.majority]


# --- probes -------------------------------------------------------------------------------------------------------------------------


def sets(model: Transformer, tokenizer: Tokenizer, told: list[Story], seed: int) -> Iterator[tuple[str, Examples]]:
    """For each skill its examples: the stream at the embedding and after each block, at the last token of words."""
    names = ["embed", *(f"blocks.{i}" for i in range(len(model.blocks)))]
    kept: list[Tensor] = []
    rows: dict[str, list[tuple[int, Any, str, int]]] = {name: [] for name in SKILLS}  # word's place in `kept`, label, form, story
    n = 0
    for number, s in enumerate(told):
        ids, ends = encoded(tokenizer, s.text, s.words, model.config.context)
        seen = trace(model, ids, names)
        kept.append(torch.stack([seen[name][0, ends] for name in names]))  # (S, words, D)
        forms = [s.text[w.start : w.end].lower() for w in s.words]
        for name, skill in SKILLS.items():
            for i, w in enumerate(s.words[: len(ends)]):
                at = i - skill.before
                if at >= 0 and (label := skill.label(s, i, w)) is not None:
                    rows[name].append((n + at, label, forms[at], number))
        n += len(ends)
    states = torch.cat(kept, 1)
    for name, found in rows.items():
        places, labels, words, units = zip(*balanced(found, seed), strict=True)
        yield name, Examples(states[:, list(places)], numbered(labels), numbered(words), torch.tensor(units))


def encoded(tokenizer: Tokenizer, text: str, words: tuple[Word, ...], context: int) -> tuple[Tensor, list[int]]:
    """The ids of a story behind a separator, as many as fit, and the place of each word's last token among them."""
    ids = [tokenizer.separator, *tokenizer.encode_array(text).tolist()][:context]
    ends, at, token = [], 0, 0
    for word in words:
        stop = len(text[: word.end].encode())
        while at < stop and token + 1 < len(ids):
            token += 1
            at += len(tokenizer.token_bytes(ids[token]))
        if at < stop:
            break
        ends.append(token)
    return torch.tensor(ids), ends


def balanced(found: list[tuple[int, Any, str, int]], seed: int) -> list[tuple[int, Any, str, int]]:
    """At most EXAMPLES of them, drawn at random, of each label no more than of any if all were as common."""
    most = max(1, EXAMPLES // len({label for _, label, _, _ in found}))
    kept, counts = [], dict[Any, int]()
    for i in torch.randperm(len(found), generator=torch.Generator().manual_seed(seed)).tolist():
        label = found[i][1]
        counts[label] = counts.get(label, 0) + 1
        if counts[label] <= most:
            kept.append(found[i])
    return kept


def numbered(values: Any) -> Tensor:
    names = {value: i for i, value in enumerate(sorted(set(values), key=str))}
    return torch.tensor([names[value] for value in values])


def scores(f: Figures, name: str) -> list[float]:
    """Selectivity at every station, less that of the untrained twin."""
    each = [[accuracy - control for accuracy, control, _ in f[arm]["probes"][name]] for arm in ("trained", "untrained")]
    return [a - b for a, b in zip(*each, strict=True)]


def depth(f: Figures, group: str) -> float:
    """The mean centre of a group's skills, in blocks."""
    able = f["trained"]["right"]["recall"] >= ABLE
    found = [centre(scores(f, name)) for name, skill in SKILLS.items() if skill.group == group and (able or name != "fact recalled")]
    return fmean(MIDDLE if value is None else value for value in found)


def trend(f: Figures) -> float:
    """What Page's L expects by chance less what it is: -2 for the document's order, +2 for the reverse."""
    depths = [depth(f, group) for group in GROUPS]
    order = [sum(other < d for other in depths) + (sum(other == d for other in depths) + 1) / 2 for d in depths]
    return 12 - sum(place * rank for place, rank in enumerate(order, 1))


# --- behaviour, and what skipping a block does to it --------------------------------------------------------------------------------


def behaviour(model: Transformer, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """`right`: the share of pairs whose right text is likelier, by kind; `lost`: by kind and block, nats of the pairs' difference that
    skipping the block takes."""
    asked = pairs(FRESH + seed, PAIRS, "en")
    texts = [[tokenizer.separator, *tokenizer.encode_array(text).tolist()] for pair in asked for text in (pair.right, pair.wrong)]
    longest = model.config.context + 1
    fits = [max(len(a), len(b)) <= longest for a, b in zip(texts[::2], texts[1::2], strict=True)]
    kinds = [pair.kind for pair, fit in zip(asked, fits, strict=True) if fit]
    texts = [text for i, text in enumerate(texts) if fits[i // 2]]
    whole = differences(model, texts)
    lost = []
    for i in range(len(model.blocks)):
        with edited(model, skip(model, f"blocks.{i}")):
            lost.append(whole - differences(model, texts))
    mean = lambda values, kind: values[[k == kind for k in kinds]].mean().item()
    return {
        "right": {kind: mean((whole > 0).double(), kind) for kind in sorted(set(kinds))},
        "lost": {kind: [mean(values, kind) for values in lost] for kind in sorted(set(kinds))},
        "pairs": len(kinds),
    }


@torch.no_grad()
def differences(model: Transformer, texts: list[list[int]], rows: int = 16) -> Tensor:
    """ln P(right) - ln P(wrong) of each pair, texts right and wrong by turns; (n,) float64."""
    total = torch.zeros(len(texts), dtype=torch.float64)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for some in (order[i : i + rows] for i in range(0, len(order), rows)):
        width = max(len(texts[i]) for i in some)
        ids = torch.zeros(len(some), width, dtype=torch.long)
        targets = torch.full((len(some), width), -100)
        for row, i in enumerate(some):
            ids[row, : len(texts[i])] = targets[row, : len(texts[i])] = torch.tensor(texts[i])
        total[some] = -model(ids[:, :-1], targets[:, 1:]).double().sum(1)
    return total[::2] - total[1::2]


def damage(f: Figures, kind: str) -> float:
    """The centre of mass of what skipping takes from a kind of pair, blocks counted from 1."""
    lost = [max(0.0, value) for value in f["trained"]["lost"][kind]]
    return sum(i * value for i, value in enumerate(lost, 1)) / sum(lost) if sum(lost) else MIDDLE


def gain(f: Figures, arm: str) -> float:
    """Mean over the skills: the best selectivity of any block less the embedding's."""
    each = [[accuracy - control for accuracy, control, _ in reads] for reads in f[arm]["probes"].values()]
    return fmean(max(values) - values[0] for values in each)


CLAIM = Claim(
    name="layer-roles",
    section="7.4a",
    sentence="Early layers tend to hold syntactic patterns and positional structure, middle ones word relations and phrase boundaries, "
    "late ones semantic content and factual recall.",
    means="In a model of 12 blocks trained on stories, the depth at which probes gain place and word class is less than that of phrases "
    "and far subjects, and that less than that of meaning and recalled facts; and the blocks whose absence costs agreement with a "
    "subject at hand are earlier than those whose absence costs agreement across two nouns.",
    published="Mixed, and mostly of BERT: word classes before phrases before roles and coreference on average, meaning spread over many "
    "layers (Tenney 2019); phrases in the lower layers, syntax in the middle, meaning at the top (Jawahar 2019), which is not the "
    "document's order. In decoders inflection can be read everywhere, and the last layers turn to the next token (Lad 2024, Li & "
    "Subramani 2025).",
    sources=(
        "Tenney et al. 2019, arXiv:1905.05950",
        "Jawahar et al. 2019, ACL P19-1356",
        "Hewitt & Liang 2019, arXiv:1909.03368",
        "Zhang & Bowman 2018, arXiv:1809.10040",
        "Lad et al. 2024, arXiv:2406.19384",
    ),
    controls="12 blocks, D 64, 700 steps of 1,248 tokens of stories by our own grammar, with exact labels; Muon and AdamW, as in the "
    "presets; probes on 800 other stories, split by story (meaning by word as well), L2 chosen on a part of its own. Subtracted: the "
    "same probe with a random label for each word, and all of it for the untrained twin. Facts count only where the model prefers the "
    "right one in 60 % of pairs; what else no layer holds counts as the middle.",
    arms={"trained": Arm(), "untrained": Arm(("train.steps=1", "optim.lr=1e-12", "optim.matrix_lr=1e-12"))},
    base=RunConfig(
        ModelConfig(vocab_size=1024, context=208, n_layer=12, n_head=4, d_model=64, positions="rotary"),
        DataConfig(corpus="stories", language="en", stories=6000),
        OptimConfig(lr=2e-2, matrix_lr=0.03, momentum=0.9, beta1=0.8),
        TrainConfig(steps=700, batch_tokens=1248, guard=False),
    ),
    measure=measure,
    questions=(
        Question(
            "depth of place and word class less that of phrases and far subjects",
            lambda f: depth(f, "early") - depth(f, "middle"),
            0.5,
            "blocks",
        ),
        Question(
            "depth of phrases and far subjects less that of meaning and facts",
            lambda f: depth(f, "middle") - depth(f, "late"),
            0.5,
            "blocks",
        ),
        Question(
            "skipping blocks: depth of agreement at hand less that across two nouns",
            lambda f: damage(f, "agreement-0") - damage(f, "agreement-2"),
            0.5,
            "blocks",
        ),
        Question(
            "skipping blocks: depth of agreement at hand less that of recall",
            lambda f: damage(f, "agreement-0") - damage(f, "recall"),
            0.5,
            "blocks",
            needed=False,
        ),
        Question("Page's L by chance less L, of the three groups' depths", trend, 0.5, "of L", needed=False),
        Question(
            "agreement across a noun: chance less the share that is right",
            lambda f: 0.5 - f["trained"]["right"]["agreement-1"],
            0.02,
            "share",
            needed=False,
        ),
        Question(
            "recall: chance less the share that is right", lambda f: 0.5 - f["trained"]["right"]["recall"], 0.02, "share", needed=False
        ),
        Question(
            "what blocks add to selectivity, untrained less trained",
            lambda f: gain(f, "untrained") - gain(f, "trained"),
            0.02,
            "share",
            needed=False,
        ),
    ),
    seeds=tuple(range(5)),
)
