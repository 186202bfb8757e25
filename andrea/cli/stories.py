"""`andrea stories`: what the built-in corpus tells, and what stands written about each word."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.show import Table, print_json, terminal

if TYPE_CHECKING:
    from andrea.data.stories import Story, Word

Option = typer.Option


def stories(
    *,
    language: Annotated[str, Option(metavar="en|sv", help="The language.")] = "en",
    n: Annotated[int, Option("-n", help="How many.")] = 3,
    first: Annotated[
        int, Option(help="The number of the first; a story's number is all that it depends on, besides seed and language.")
    ] = 0,
    seed: Annotated[int, Option(help="Of the whole corpus; data.seed of a run.")] = 0,
    labels: Annotated[bool, Option("--labels", help="Also a table of the words: class, phrase, agreement, meaning, facts.")] = False,
    pairs: Annotated[bool, Option("--pairs", help="Instead: n pairs of a right and a wrong text that differ in one word.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object, with all labels.")] = False,
) -> None:
    """Read the stories of the built-in corpus, and their labels.

    Examples:

      andrea stories --language sv -n 5

      andrea stories --first 3 -n 1 --labels

      andrea stories --pairs -n 8 --json
    """
    from andrea.data.stories import pairs as all_pairs
    from andrea.data.stories import stories as all_stories

    if n < 1 or first < 0:
        raise ValueError(f"-n {n} must be at least 1, and --first {first} at least 0")
    if pairs and (labels or first):
        raise ValueError("--pairs are no stories; leave out --labels and --first")
    told = () if pairs else islice(all_stories(seed, language, first), n)  # each is made when it is printed
    found = all_pairs(seed, n, language) if pairs else []
    if as_json:
        key, items = (
            ("pairs", [pair._asdict() for pair in found]) if pairs else ("stories", [plain(s, i) for i, s in enumerate(told, first)])
        )
        print_json({"language": language, "seed": seed, key: items})
        return
    for pair in found:
        print(f"{pair.kind}\n  right  {pair.right}\n  wrong  {pair.wrong}\n")
    for number, story in enumerate(told, first):
        print(f"story {number}, topic {story.topic}, plot {story.plot}\n{story.text}\n")
        if labels:
            columns = ("word", "class", "meaning", "phrase", "number", "agrees with", "fact")
            terminal([Table("", columns, [row(story, word) for word in story.words])])


def plain(story: "Story", index: int) -> dict[str, Any]:
    words, facts = [word._asdict() for word in story.words], [fact._asdict() for fact in story.facts]
    return {"index": index, **story._asdict(), "words": words, "facts": facts}


def row(story: "Story", word: "Word") -> tuple[str, ...]:
    """What a person wants to see of a label."""
    said = lambda w: story.text[w.start : w.end]
    agrees = ""
    if word.agrees and word.subject is not None:
        agrees = f"{said(story.words[word.subject])}, {word.attractors} between"
    fact = ""
    for does, index in (("states", word.states), ("recalls", word.recalls)):
        if index is not None:
            fact = f"{does} {story.facts[index].kind} of {story.facts[index].of}"
    phrase = ("[" if word.begins_phrase else "|") * word.depth
    return said(word), word.word_class, word.meaning, phrase, word.number, agrees, fact
