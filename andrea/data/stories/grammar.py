"""Rules and a lexicon -> sentences in which every word is labelled as it is written.

A rule is a line of tokens, parted by spaces:

    ( a | b | )       one of these; nothing is one of them here
    OPENING           another rule, of which one line is taken
    the:thing         a noun phrase about a slot of the story: a the this no bare own my your his, and + with its adjective, * with 0 to 2
                      phrases behind it (near the old houses ...); own:hero:thing is the hero's
    the:%animal.p     the same about something from a group of the lexicon; .s singular, .p plural, else either
    name:pet he:pet him:pet as:spot   its name, its pronouns, its preposition
    =live :live       a verb that agrees with the last subject; as in the dictionary. =%going, :@act: of a group, of a slot
    ~tired ~%mood ~@thing             an adjective that agrees with the last subject: this one, of a group, of a slot
    ^                 before a noun phrase or a word: this is the subject from now on
    [ ]               a noun phrase written word for word between them; a pronoun is one without them
    word  word/verb   a word, with its class where the lexicon has several; « and » are quotation marks, ». one that ends its sentence
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

NUMBER = {  # of pronouns; the others are of either
    "singular": "I he she it him her me everybody everything something nothing "
    "jag du han hon den det mig dig honom henne allt något ingenting en",
    "plural": "they we them us both de vi dem oss ni båda alla andra",
}
SIGNS = frozenset([*".,!?«»[]", "»."])
NOUN_PHRASE = re.compile(r"(\^?)([a-z]+)(\+?)(\*?):(%?)([a-z]+)(?::([a-z]+))?(?:\.([sp]))?")
BEHIND = (0.3, 0.7)  # of subjects that may have phrases behind them, the shares that have none, and at most one; the others have two


class Word(NamedTuple):
    """One word of a story, and what stands written about it. Indices are places in `Story.words`."""

    start: int  # text[start:end] is the word
    end: int
    word_class: str  # noun name verb adjective pronoun determiner preposition adverb conjunction particle
    lemma: str  # the dictionary's form
    meaning: str  # of nouns, names, verbs and adjectives: animal person food place nature thing time ..., motion speech ...; else ""
    depth: int  # noun phrases that it stands in, one within the other
    begins_phrase: bool  # the first word of a noun phrase
    number: str  # singular or plural, of nouns, names, pronouns, and of what agrees with a subject; else ""
    subject: int | None  # the head of the subject, for every word behind it up to the one that agrees, that one too; else None
    agrees: bool  # a verb (English) or predicate adjective (Swedish) in the number of words[subject]
    attractors: int  # where agrees: nouns of the other number between subject and this word
    states: int | None  # the fact that this word states: an index into Story.facts
    recalls: int | None  # the fact that was stated before and stands here again


class Fact(NamedTuple):
    """Something a story states once and comes back to."""

    kind: str  # colour (of the toy), name (of the pet), food (liked best), work (of a parent), place (where it was found)
    of: str  # whom or what it is about: a name, or a noun's lemma
    value: str  # a lemma or a name
    stated: int  # index of the word
    recalled: tuple[int, ...]  # indices of the words


class Noun(NamedTuple):
    lemma: str
    meaning: str
    forms: tuple[str, ...]  # singular, plural; in Swedish each without and with its article
    neuter: bool = False


class Adjective(NamedTuple):
    lemma: str
    meaning: str
    forms: tuple[str, ...]  # one, or common, neuter, plural, definite


class Verb(NamedTuple):
    lemma: str
    meaning: str
    forms: tuple[str, ...]  # as in the dictionary; present tense, third person singular; others that rules write word for word


class Piece(NamedTuple):
    """A word of a noun phrase before it is written."""

    text: str
    word_class: str
    lemma: str
    meaning: str = ""
    number: str = ""
    role: str = ""  # noun, adjective, name: what a fact may hang on
    swap: Callable[[Any], str] | None = None  # another word of the lexicon in the same form


@dataclass
class Thing:
    """What a noun phrase is about."""

    noun: Noun
    plural: bool = False
    adjective: Adjective | None = None
    name: str = ""
    gender: str = "it"  # she he it
    preposition: str = ""
    fact: tuple[str, str, str] | None = None  # role of the word that tells it, kind, of

    @property
    def number(self) -> str:
        return "plural" if self.plural else "singular"


@dataclass(frozen=True)
class Lexicon:
    """Words, groups of them, topics and rules of a language, and how it builds phrases."""

    nouns: dict[str, Noun]
    adjectives: dict[str, Adjective]
    verbs: dict[str, Verb]
    closed: dict[str, str]  # class -> forms; here and below words are parted by spaces
    names: dict[str, str]  # she, he, pet
    groups: dict[str, str]
    topics: dict[str, dict[str, str]]  # topic -> groups that are its own
    rules: dict[str, str]  # name -> lines
    prepositions: tuple[str, ...]  # that stand between a subject and what lies near it
    phrase: Callable[[str, Thing, bool, Thing | None], list[Piece]]
    pronoun: Callable[[str, Thing], str]
    agreeing: Callable[
        ["Verb | Adjective", bool, bool], tuple[str, str]
    ]  # word, plural, neuter -> right, wrong form ("" where both are one)
    forms: dict[str, dict[str, Piece]] = field(default_factory=dict)  # form -> class -> word, of all that rules may write word for word

    def __post_init__(self) -> None:
        for noun in self.nouns.values():
            for i, form in reversed([*enumerate(noun.forms)]):
                number = "singular" if i < len(noun.forms) / 2 else "plural"
                self.forms.setdefault(form, {})["noun"] = Piece(form, "noun", noun.lemma, noun.meaning, number)
        for adjective in self.adjectives.values():
            for form in adjective.forms:
                self.forms.setdefault(form, {})["adjective"] = Piece(form, "adjective", adjective.lemma, adjective.meaning)
        for verb in self.verbs.values():
            for form in verb.forms:
                self.forms.setdefault(form, {})["verb"] = Piece(form, "verb", verb.lemma, verb.meaning)
        for word_class, words in self.closed.items():
            for form in words.split():
                number = next((n for n, words in NUMBER.items() if form in split(words)), "") if word_class == "pronoun" else ""
                self.forms.setdefault(form, {})[word_class] = Piece(form, word_class, form, "", number)

    def literal(self, token: str) -> Piece:
        form, _, word_class = token.partition("/")
        known = self.forms.get(form, {})
        assert word_class in known or (not word_class and len(known) == 1), f"{token!r}: the lexicon has {form!r} as {[*known]}"
        return known[word_class] if word_class else next(iter(known.values()))


@cache
def split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


@cache
def lines_of(rule: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in rule.strip().splitlines())


@cache
def parsed(rule: str) -> tuple[Any, ...]:
    """A rule as a tuple of (kind, ...) nodes."""
    tokens = re.sub(r"([(|)])", r" \1 ", rule).split()
    sequence, rest = parse(tokens, 0)
    assert rest == len(tokens), rule
    return sequence


def parse(tokens: list[str], at: int) -> tuple[tuple[Any, ...], int]:
    nodes: list[Any] = []
    while at < len(tokens) and tokens[at] not in "|)":
        if tokens[at] == "(":
            choices = []
            while tokens[at] != ")":
                choice, at = parse(tokens, at + 1)
                choices.append(choice)
            nodes.append(("choice", tuple(choices)))
        else:
            nodes.append(node(tokens[at]))
        at += 1
    return tuple(nodes), at


def node(token: str) -> tuple[Any, ...]:
    if token in SIGNS:
        return (token,)
    if token[0] in "=:~":
        return ({"=": "verb", ":": "dictionary", "~": "adjective"}[token[0]], token[1:])
    if found := NOUN_PHRASE.fullmatch(token):
        subject, form, plus, star, group, source, owned, number = found.groups()
        return ("phrase", bool(subject), form, bool(plus), bool(star), bool(group), source, owned, number)
    if token.isupper() and len(token) > 1:
        return ("rule", token)
    return ("word", token.startswith("^"), token.removeprefix("^"))


class Teller:
    """Writes one story: `tell` a rule after the other. `draw` gives numbers from 0 up to 1."""

    def __init__(self, lexicon: Lexicon, topic: str, draw: Callable[[], float]):
        self.lexicon, self.topic, self.draw = lexicon, topic, draw
        self.slots: dict[str, Thing] = {}
        self.acts: dict[str, Verb] = {}
        self.attractors: int | None = None  # so many nouns of the other number behind each subject that may have some; None: as it comes
        self.taken: set[str] = set()  # lemmas that the story has used for something
        self.last: dict[str, str] = {}  # rule -> the line taken last
        self.parts: list[str] = []
        self.words: list[Word] = []
        self.wrong: dict[int, str] = {}  # index of a word that agrees -> its form in the other number
        self.swaps: dict[int, tuple[str, Callable[[Any], str]]] = {}  # index of a word that tells a fact -> kind, another word's same form
        self.facts: dict[str, Fact] = {}  # kind -> fact
        self.at = self.depth = 0
        self.capital, self.gap, self.begins = True, "", False
        self.subject, self.plural, self.neuter = 0, False, False

    # --- choosing ---

    def pick(self, options: Any) -> Any:
        return options[int(self.draw() * len(options))]

    def group(self, name: str) -> tuple[str, ...]:
        return split(self.lexicon.topics[self.topic].get(name) or self.lexicon.groups[name])

    def fresh(self, group: str) -> str:
        """A word of the group that the story has not used yet, if there is one."""
        options = self.group(group)
        lemma = self.pick([word for word in options if word not in self.taken] or options)
        self.taken.add(lemma)
        return lemma

    def thing(self, group: str, number: str | None, plural: float = 0.5) -> Thing:
        """Something from a group, with an adjective that suits its meaning."""
        noun = self.lexicon.nouns[self.fresh(group)]
        many = number == "p" or (number is None and self.draw() < plural)
        return Thing(noun, many, self.lexicon.adjectives[self.pick(split(self.lexicon.groups[f"{noun.meaning}_is"]))])

    # --- writing ---

    def tell(self, rule: str) -> None:
        lines = lines_of(self.lexicon.rules[rule])
        line = lines[0] if len(lines) == 1 else self.pick([line for line in lines if line != self.last.get(rule)])
        self.last[rule] = line
        self.run(parsed(line))

    def run(self, nodes: tuple[Any, ...]) -> None:
        for kind, *rest in nodes:
            if kind == "word":
                subject, token = rest
                piece = self.lexicon.literal(token)
                alone = piece.word_class == "pronoun" and not self.begins
                if alone:
                    self.open()
                self.write(piece, subject)
                self.depth -= alone
            elif kind == "phrase":
                self.noun_phrase(*rest)
            elif kind in ("verb", "dictionary"):
                self.verb(rest[0], kind == "verb")
            elif kind == "adjective":
                self.adjective(rest[0])
            elif kind == "choice":
                self.run(self.pick(rest[0]))
            elif kind == "rule":
                self.tell(rest[0])
            else:
                self.mark(kind)

    def mark(self, sign: str) -> None:
        if sign == "[":
            self.open()
        elif sign == "]":
            self.depth -= 1
        elif sign == "«":
            self.put(self.gap + '"')
            self.gap, self.capital = "", True
        else:
            self.put('"' if sign[0] == "»" else sign)
            self.gap, self.capital = " ", sign not in ",»"

    def put(self, text: str) -> None:
        self.parts.append(text)
        self.at += len(text)

    def open(self) -> None:
        self.depth += 1
        self.begins = True

    def write(self, piece: Piece, subject: bool = False) -> int:
        """Write a word; give its index."""
        text = piece.text[0].upper() + piece.text[1:] if self.capital else piece.text
        start = self.at + len(self.gap)
        self.put(self.gap + text)
        self.gap, self.capital = " ", False
        self.words.append(Word(start, self.at, *piece[1:4], self.depth, self.begins, piece.number, None, False, 0, None, None))
        self.begins = False
        if subject:
            self.subject, self.plural, self.neuter = len(self.words) - 1, piece.number == "plural", False
        return len(self.words) - 1

    def noun_phrase(
        self, subject: bool, form: str, plus: bool, star: bool, is_group: bool, source: str, owned: str | None, number: str | None
    ) -> None:
        if form == "as":
            preposition = self.slots[source].preposition
            self.write(Piece(preposition, "preposition", preposition))
            return
        thing = self.thing(source, number) if is_group else self.slots[owned or source]
        if is_group and not plus:
            plus = self.draw() < 0.3
        self.open()
        if form == "name":
            meaning = thing.noun.meaning
            pieces = [Piece(thing.name, "name", thing.name, meaning, "singular", "name", str)]
        elif form in ("he", "him"):
            pronoun = self.lexicon.pronoun(form, thing)
            pieces = [Piece(pronoun, "pronoun", pronoun, "", thing.number)]
        else:
            pieces = self.lexicon.phrase(form, thing, plus, self.slots[source] if owned else None)
        for i, piece in enumerate(pieces):
            place = self.write(piece, subject and i == len(pieces) - 1)
            if thing.fact and piece.role == thing.fact[0]:
                self.tell_fact(place, piece, *thing.fact[1:])
        if subject:
            self.neuter = thing.noun.neuter and form != "name"
        if star and self.attractors is not None:
            self.behind(self.attractors, "s" if thing.plural else "p")
        elif star:
            chance = self.draw()
            self.behind(sum(chance > share for share in BEHIND))
        self.depth -= 1

    def behind(self, count: int, number: str | None = None, but: str = "") -> None:
        """So many phrases behind a noun, one within the other: near the old houses by the river."""
        if count:
            preposition = self.pick([p for p in self.lexicon.prepositions if p != but])
            self.write(Piece(preposition, "preposition", preposition))
            thing = self.thing("landmark", number)
            self.open()
            for piece in self.lexicon.phrase("the", thing, self.draw() < 0.4, None):
                self.write(piece)
            self.behind(count - 1, number, preposition)
            self.depth -= 1

    def tell_fact(self, place: int, piece: Piece, kind: str, of: str) -> None:
        word, number = self.words[place], [*self.facts, kind].index(kind)
        if kind in self.facts:
            fact = self.facts[kind]
            self.facts[kind] = fact._replace(recalled=(*fact.recalled, place))
            self.words[place] = word._replace(recalls=number)
        else:
            self.facts[kind] = Fact(kind, of, piece.lemma, place, ())
            self.words[place] = word._replace(states=number)
        assert piece.swap
        self.swaps[place] = kind, piece.swap

    def verb(self, source: str, agrees: bool) -> None:
        if source[0] == "@":
            verb = self.acts[source[1:]]
        else:
            verb = self.lexicon.verbs[self.pick(self.group(source[1:])) if source[0] == "%" else source]
        right, wrong = self.lexicon.agreeing(verb, self.plural, self.neuter) if agrees else (verb.forms[0], "")
        self.agree(self.write(Piece(right, "verb", verb.lemma, verb.meaning)), wrong)

    def adjective(self, source: str) -> None:
        if source[0] == "@":
            thing = self.slots[source[1:]]
            assert thing.adjective
            adjective = thing.adjective
        else:
            if source[0] == "%":
                before = self.words[self.subject - 1].lemma  # no new house is new
                source = self.pick([lemma for lemma in self.group(source[1:]) if lemma != before])
            adjective = self.lexicon.adjectives[source]
        plural, neuter = self.plural, self.neuter
        right, wrong = self.lexicon.agreeing(adjective, plural, neuter)
        swap = lambda other: self.lexicon.agreeing(other, plural, neuter)[0]
        piece = Piece(right, "adjective", adjective.lemma, adjective.meaning, swap=swap)
        place = self.write(piece)
        self.agree(place, wrong)
        if source[0] == "@" and thing.fact and thing.fact[0] == "adjective":
            self.tell_fact(place, piece, *thing.fact[1:])

    def agree(self, place: int, wrong: str) -> None:
        """Label the word, and those between the subject and it."""
        if not wrong:
            return
        self.wrong[place] = wrong
        number = "plural" if self.plural else "singular"
        between = range(self.subject + 1, place)
        attractors = sum(self.words[i].word_class == "noun" and self.words[i].number != number for i in between)
        for i in between:
            self.words[i] = self.words[i]._replace(subject=self.subject)
        self.words[place] = self.words[place]._replace(subject=self.subject, number=number, agrees=True, attractors=attractors)

    @property
    def text(self) -> str:
        return "".join(self.parts)
