"""Short stories with exact labels, in English and Swedish: a corpus without end, of which it is known what every word is.

`story(seed, index, language)` is the same on every machine and needs no other story. Labels come from the grammar as it writes
(grammar.py): word class, noun phrases and their depth, number and what agrees with it across how many nouns of the other number,
meaning, topic, and facts: stated once ("Her kite is red."), recalled later ("It is red," says Mia).

    s = story(seed=0, index=3, language="en")
    for word in s.words:
        print(s.text[word.start : word.end], word.word_class, word.meaning)

What no probe should forget: words of several classes ("watch", "light"; in Swedish "bär", "får") are `ambiguous(language)`; a label that
hangs on the type of the word alone can be read off its embedding.
"""

import random
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from andrea.data.stories import english, swedish
from andrea.data.stories.grammar import Fact, Lexicon, Teller, Thing, Word, split

LEXICONS = {"en": english.lexicon, "sv": swedish.lexicon}
PLOTS = {  # how each goes on after it has said who and what there is, and which facts it needs
    "lost": ("LOST LOW SEARCH MEET ASK TELL FOUND HIGH", "colour"),
    "broken": ("BREAK LOW MEET ASK MEND HIGH", "colour"),
    "hungry": ("NEED HUNGRY GIVE THANK", "food"),
    "storm": ("STORM LOW SHELTER WARM AFTER HIGH", ""),
    "gift": ("GIFT LACK HELP JOY", "work"),
    "quarrel": ("BOTH QUARREL MEET SHARE HIGH", "colour"),
    "runaway": ("RUN LOW CALL MEET ASK TELL_pet FOUND_pet HIGH", "name"),
    "learn": ("WISH TRY LOW MEET TEACH CAN HIGH", ""),
}
STATED = ("colour", "name", "food", "work")


class Story(NamedTuple):
    text: str
    words: tuple[Word, ...]
    topic: str  # sea forest kitchen garden farm winter music school
    plot: str  # a key of PLOTS
    facts: tuple[Fact, ...]


class Pair(NamedTuple):
    """Two texts that differ in one word. A model that has learned the language gives `right` the higher probability."""

    right: str
    wrong: str
    kind: str  # agreement-0, -1, -2: that many nouns of the other number stand between subject and word; recall: of a fact stated before


@cache
def lexicon(language: str) -> Lexicon:
    """Raises ValueError for a language that there is none of."""
    if language not in LEXICONS:
        raise ValueError(f"there are no stories in language={language!r}; there are some in {' and '.join(LEXICONS)}")
    return LEXICONS[language]()


def teller(seed: int, index: int, language: str, kind: str = "story") -> Teller:
    """Only random() of Python's generator is used: of it alone Python promises the same numbers for ever."""
    key = sha256(f"{kind} {language} {seed} {index}".encode()).digest()
    draw = random.Random(int.from_bytes(key[:16], "big")).random
    lex = lexicon(language)
    return Teller(lex, [*lex.topics][int(draw() * len(lex.topics))], draw)


def story(seed: int, index: int, language: str = "en") -> Story:
    """The story of that number; any whole numbers do."""
    t = teller(seed, index, language)
    plot = tell(t)
    return Story(t.text, tuple(t.words), t.topic, plot, tuple(t.facts.values()))


def tell(t: Teller) -> str:
    """Write a whole story: who and what, two or three facts, what there is to see, what happens, the facts, an end. Gives its plot."""
    cast(t)
    plot = t.pick([*PLOTS])
    t.slots["spot"].fact = ("noun", "place", t.slots["pet" if plot == "runaway" else "thing"].noun.lemma)
    rules, needed = PLOTS[plot]
    others = shuffled([kind for kind in STATED if kind != needed], t)[: 2 - bool(needed) + (t.draw() < 0.3)]
    stated = shuffled([*others, *[needed] * bool(needed)], t)
    for rule in ("OPEN", *(f"STATE_{kind}" for kind in stated), "SCENE", "SCENE"):
        t.tell(rule)
    first, *rest = rules.split()
    for rule in (first, "SCENE", *rest, *(f"RECALL_{kind}" for kind in shuffled(stated, t)), "END"):
        t.tell(rule)
    return plot


def shuffled(items: list[str], t: Teller) -> list[str]:
    return [item for _, item in sorted((t.draw(), item) for item in items)]


def cast(t: Teller) -> None:
    """Fill the slots: who and what the story is about."""
    lex = t.lexicon
    genders = ("she", "he") if t.draw() < 0.5 else ("he", "she")
    for slot, gender in zip(("hero", "friend"), genders, strict=True):
        noun = lex.nouns[split(lex.groups["child"])[gender == "he"]]
        t.slots[slot] = Thing(noun, False, lex.adjectives[t.pick(t.group("nature"))], t.pick(split(lex.names[gender])), gender)
    for slot in ("thing", "pet", "place", "shelter", "animal", "parent", "helper", "work", "bag", "birthday", "tool", "food"):
        plural = 1.0 if slot == "food" else 0.0
        thing = t.slots[slot] = t.thing(slot, None, plural)
        if thing.noun.meaning == "person":
            thing.gender = next((g for g in ("she", "he") if thing.noun.lemma in split(lex.groups[g])), "she" if t.draw() < 0.5 else "he")
    hero, thing, pet = t.slots["hero"].name, t.slots["thing"], t.slots["pet"]
    thing.adjective, thing.fact = lex.adjectives[t.pick(t.group("colour"))], ("adjective", "colour", thing.noun.lemma)
    pet.name, pet.fact = t.pick(split(lex.names["pet"])), ("name", "name", pet.noun.lemma)
    t.slots["food"].fact = ("noun", "food", hero)
    t.slots["work"].fact = ("noun", "work", t.slots["parent"].noun.lemma)
    preposition, _, lemma = t.pick(t.group("spot")).partition(":")
    t.slots["spot"] = Thing(lex.nouns[lemma], preposition=preposition)
    t.taken.add(lemma)
    t.acts["act"] = lex.verbs[t.pick(t.group("act"))]


def stories(seed: int, language: str = "en", first: int = 0) -> Iterator[Story]:
    """Stories first, first + 1, ... without end."""
    while True:
        yield story(seed, first, language)
        first += 1


def pairs(seed: int, n: int, language: str = "en") -> list[Pair]:
    """n pairs, the kinds by turns. They begin as stories do, and are of none that `story` gives."""
    return [recall_pair(seed, i, language) if i % 4 == 3 else agreement_pair(seed, i, language, i % 4) for i in range(n)]


def agreement_pair(seed: int, index: int, language: str, attractors: int) -> Pair:
    """An opening, and a sentence whose subject has so many nouns of the other number behind it."""
    t = teller(seed, index, language, "pair")
    cast(t)
    t.tell("OPEN")
    t.attractors, before = attractors, len(t.words)
    t.tell("AGREEMENT")
    of_noun = [i for i in t.wrong if i >= before and t.words[t.words[i].subject or 0].word_class == "noun"]
    place = next(i for i in of_noun if t.words[i].attractors == attractors)
    return swapped(t, place, t.wrong[place], f"agreement-{attractors}")


def recall_pair(seed: int, index: int, language: str) -> Pair:
    """A story up to a fact that it comes back to; the wrong one has a value that it has not spoken of, where one is left."""
    t = teller(seed, index, language, "pair")
    tell(t)
    place = t.pick([fact.recalled[-1] for fact in t.facts.values() if fact.recalled])
    kind, same_form = t.swaps[place]
    lex, said = t.lexicon, {word.lemma for word in t.words}
    values: dict[str, Any]  # lemma -> what same_form takes
    if kind == "name":
        values = {name: name for name in split(lex.names["pet"])}
    elif kind == "colour":
        values = {lemma: lex.adjectives[lemma] for lemma in t.group("colour")}
    elif kind == "place":
        spots = [spot.split(":") for spot in t.group("spot")]
        same = [lemma for preposition, lemma in spots if preposition == t.slots["spot"].preposition and lemma not in said]
        values = {lemma: lex.nouns[lemma] for lemma in same or [lemma for _, lemma in spots]}
    else:
        values = {lemma: lex.nouns[lemma] for lemma in t.group(kind)}
    free = [lemma for lemma in values if lemma not in said] or [lemma for lemma in values if lemma != t.words[place].lemma]
    return swapped(t, place, same_form(values[t.pick(free)]), "recall")


def swapped(t: Teller, place: int, wrong: str, kind: str) -> Pair:
    """The text up to the end of the sentence of a word, and the same with another word there."""
    start, end = t.words[place].start, t.words[place].end
    stop = next(i for i in range(end, len(t.text)) if t.text[i] in ".!?") + 1
    wrong = wrong[0].upper() + wrong[1:] if t.text[start].isupper() else wrong
    return Pair(t.text[:stop], t.text[:start] + wrong + t.text[end:stop], kind)


def ambiguous(language: str) -> dict[str, tuple[str, ...]]:
    """Forms that the lexicon has as several of noun, verb and adjective -> those classes."""
    open_classes = ("noun", "verb", "adjective")
    found = {form: tuple(c for c in open_classes if c in classes) for form, classes in lexicon(language).forms.items()}
    return {form: classes for form, classes in found.items() if len(classes) > 1}
