"""Stories are the same everywhere, and every label says what the text says."""

import json
import re
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from itertools import islice

import pytest
from test_cli import andrea
from test_mistakes import check

from andrea.config import LANGUAGES, DataConfig, override
from andrea.data.prepare import check_prepared, prepare
from andrea.data.stories import LEXICONS, PLOTS, ambiguous, lexicon, pairs, stories, story
from andrea.data.stories.grammar import lines_of, parsed

GOLDEN = {
    "en": "9578851f1474c3e7c0694fbe18eb188fd7320f4dfb7c02ab1595681a1d3c1a19",
    "sv": "048565a930fd83b3c568648ace648917f4ed6e7919646ce5beb69e241d8428d9",
}
both = pytest.mark.parametrize("language", LANGUAGES)


def said(told, word) -> str:
    return told.text[word.start : word.end]


@both
def test_the_first_twenty_stories_are_these_in_every_process(language):
    program = (
        "import sys; from hashlib import sha256; from andrea.data.stories import story\n"
        "told = [repr(story(0, i, sys.argv[1])) for i in reversed(range(20))]\n"
        "print(sha256(''.join(reversed(told)).encode()).hexdigest())"
    )
    here = sha256("".join(repr(story(0, i, language)) for i in range(20)).encode()).hexdigest()
    there = subprocess.run([sys.executable, "-c", program, language], capture_output=True, text=True, check=True).stdout.strip()
    assert here == there == GOLDEN[language]


@both
def test_no_story_needs_another_and_there_is_no_last_one(language):
    assert list(islice(stories(7, language, first=10**12), 3)) == [story(7, 10**12 + i, language) for i in range(3)]
    assert len({story(seed, index, language).text for seed in (-1, 0, 2**70) for index in (-1, 0, 2**70)}) == 9
    assert set(LANGUAGES) == set(LEXICONS) and not {story(0, i, "en").text for i in range(50)} & {story(0, i, "sv").text for i in range(50)}


@both
def test_no_two_of_five_thousand_stories_are_alike_and_none_is_long_or_short(language):
    told = list(islice(stories(1, language), 5_000))
    assert len({s.text for s in told}) == 5_000
    assert all(60 <= len(s.words) <= 200 for s in told)
    assert {s.plot for s in told} == set(PLOTS) and len({s.topic for s in told}) == 8
    common = Counter(s.topic for s in told).most_common()
    assert common[0][1] < 1.5 * common[-1][1]  # 625 of each are expected, 23 the standard deviation


@both
def test_the_words_are_all_that_is_written_in_their_order(language):
    for s in islice(stories(2, language), 300):
        assert [said(s, w) for w in s.words] == re.findall(r"\w+", s.text)
        assert all(a.end < b.start for a, b in zip(s.words, s.words[1:], strict=False))
        assert re.fullmatch(r'[\w ,.!?"]+', s.text) and s.text[0].isupper() and s.text[-1] in '.!?"'
        assert "  " not in s.text and not re.search(r" [,.!?]", s.text) and s.text.count('"') % 2 == 0
        assert not re.search(r'[.!?] "?[a-zåäö]', s.text)  # a sentence begins with a capital


@both
def test_labels_agree_with_the_lexicon_which_finds_the_word_by_its_spelling(language):
    lex = lexicon(language)
    names = {name for group in lex.names.values() for name in group.split()}
    for s in islice(stories(3, language), 300):
        for w in s.words:
            form = said(s, w)
            if w.word_class == "name":
                assert form == w.lemma and w.lemma in names
            elif w.word_class in ("noun", "verb", "adjective"):
                entry = {"noun": lex.nouns, "verb": lex.verbs, "adjective": lex.adjectives}[w.word_class][w.lemma]
                assert form.lower() in entry.forms and w.meaning == entry.meaning
            else:
                assert w.meaning == "" and w.word_class in lex.closed
            assert w.depth or w.word_class not in ("noun", "name", "pronoun")  # these stand in a noun phrase
            assert w.depth or not w.begins_phrase


@both
def test_noun_phrases_begin_with_their_first_word_and_deepen_one_at_a_time(language):
    depths = Counter()
    for s in islice(stories(4, language), 300):
        before = 0
        for w in s.words:
            assert w.depth <= before + 1 if w.begins_phrase else w.depth <= before
            before = w.depth
            depths[w.depth] += 1
        assert all(w.begins_phrase for w in s.words if w.word_class == "determiner" and said(s, w).lower() in ("a", "the", "ett", "sin"))
    assert set(depths) == {0, 1, 2, 3}


@both
def test_what_agrees_has_the_form_for_its_subject_across_any_noun_between(language):
    """By the spelling alone: an English verb ends in s with one subject, a Swedish adjective in a or na with several."""
    seen = Counter()
    for s in islice(stories(5, language), 600):
        for i, w in enumerate(s.words):
            if not w.agrees:
                continue
            head = s.words[w.subject]
            assert head.number == w.number and w.subject < i and head.word_class in ("noun", "name", "pronoun")
            form = said(s, w)
            if language == "en":
                assert w.word_class == "verb"
                assert (
                    {"are": "plural", "is": "singular"}.get(form) == w.number
                    if w.lemma == "be"
                    else form.endswith("s") == (w.number == "singular")
                )
            else:
                assert w.word_class == "adjective"
                assert (form.endswith("a") or form == "små") == (w.number == "plural")
            between = s.words[w.subject + 1 : i]
            assert all(other.subject == w.subject for other in between) or any(other.agrees for other in between)
            assert w.attractors == sum(other.word_class == "noun" and other.number != w.number for other in between)
            if head.word_class == "noun":
                forms = lexicon(language).nouns[head.lemma].forms
                half = len(forms) // 2
                assert said(s, head).lower() in (forms[half:] if w.number == "plural" else forms[:half])
            seen[w.number, min(w.attractors, 2)] += 1
    assert all(seen[number, attractors] >= 10 for number in ("singular", "plural") for attractors in (0, 1, 2)), seen


@both
def test_facts_that_are_recalled_are_those_that_were_stated(language):
    kinds = Counter()
    for s in islice(stories(6, language), 500):
        assert len(s.facts) >= 2 and sum(bool(fact.recalled) for fact in s.facts) >= 2
        for number, fact in enumerate(s.facts):
            kinds[fact.kind] += 1
            assert s.words[fact.stated].states == number and s.words[fact.stated].lemma == fact.value
            assert all(s.words[i].recalls == number and s.words[i].lemma == fact.value and i > fact.stated for i in fact.recalled)
            assert fact.of in {w.lemma for w in s.words}
        assert {i for i, w in enumerate(s.words) if w.recalls is not None} == {i for fact in s.facts for i in fact.recalled}
        assert [i for i, w in enumerate(s.words) if w.states is not None] == [fact.stated for fact in s.facts]
    assert min(kinds.values()) > 40 and set(kinds) == {"colour", "name", "food", "work", "place"}


@both
def test_words_of_several_classes_are_used_as_each_and_classes_have_many_words(language):
    used: dict[str, set[str]] = {}
    types: dict[str, set[str]] = {}
    meanings: dict[str, set[str]] = {}
    for s in islice(stories(8, language), 2_000):
        for w in s.words:
            used.setdefault(said(s, w).lower(), set()).add(w.word_class)
            types.setdefault(w.word_class, set()).add(w.lemma)
            meanings.setdefault(w.meaning, set()).add(w.lemma)
    several = {form for form, classes in used.items() if len(classes & {"noun", "verb", "adjective"}) > 1}
    assert len(several) >= 12 and several <= set(ambiguous(language))
    assert min(len(types[c]) for c in ("noun", "name", "verb", "adjective", "determiner", "preposition", "adverb", "pronoun")) >= 10
    assert all(len(meanings[m]) >= 10 for m in ("animal", "person", "food", "place", "thing", "nature", "motion")), meanings
    assert 300 <= sum(map(len, types.values())) <= 600


@both
def test_pairs_differ_in_one_word_and_are_of_no_story(language):
    found = pairs(0, 1_200, language)
    assert found[:9] == pairs(0, 9, language) != pairs(1, 9, language)
    assert Counter(pair.kind for pair in found) == dict.fromkeys(("agreement-0", "agreement-1", "agreement-2", "recall"), 300)
    right_forms = Counter()
    lex = lexicon(language)
    for pair in found:
        right, wrong = (re.findall(r"\w+|\S", text) for text in (pair.right, pair.wrong))
        ((a, b),) = [(a, b) for a, b in zip(right, wrong, strict=True) if a != b]
        assert a[0].isupper() == b[0].isupper()
        if pair.kind == "recall":
            assert b.lower() not in map(str.lower, right)
        else:
            right_forms[a] += 1
            assert {"verb", "adjective"} & {*lex.forms[a]} & {*lex.forms[b]}
    assert not {pair.right for pair in found} & {story(0, i, language).text for i in range(300)}
    if language == "en":
        assert 0.6 < right_forms["is"] / right_forms["are"] < 1.6  # neither number is the better guess


@both
def test_every_rule_can_be_told(language):
    """Each line of each rule, not only those that some story took."""
    lex = lexicon(language)
    groups = {*lex.groups, *(name for topic in lex.topics.values() for name in topic)}

    def walk(nodes):
        for kind, *rest in nodes:
            if kind == "word":
                lex.literal(rest[1])
            elif kind == "choice":
                for choice in rest[0]:
                    walk(choice)
            elif kind == "rule":
                assert rest[0] in lex.rules
            elif kind in ("verb", "dictionary", "adjective") and rest[0][0] != "@":
                words = lex.adjectives if kind == "adjective" else lex.verbs
                assert rest[0][1:] in groups if rest[0][0] == "%" else rest[0] in words
            elif kind == "phrase" and rest[4]:
                assert rest[5] in groups
        brackets = Counter(kind for kind, *_ in nodes)
        assert brackets["["] == brackets["]"] and brackets["«"] == brackets["»"] + brackets["»."]

    for rule in lex.rules.values():
        for line in lines_of(rule):
            walk(parsed(line))


def test_preparing_stories_gives_each_split_its_own_and_the_same_again(tmp_path):
    config = DataConfig(corpus="stories", language="sv", stories=300)
    made, again = (prepare(config, 1_000, tmp_path / name) for name in ("one", "two"))
    assert made.fingerprint == again.fingerprint
    assert made.report["documents"] == 300 and made.report["duplicates"]["units"] == 0 and made.report["overlap"]["units"] == 0
    check_prepared(made)
    texts = {split: made.tokenizer.decode(getattr(made, split).read(0, len(getattr(made, split))).tolist()) for split in ("train", "val")}
    there = {split: sum(story(0, i, "sv").text in text for i in range(300)) for split, text in texts.items()}
    assert there["train"] + there["val"] == 300 and 25 <= there["val"] <= 40
    others = prepare(override(config, "seed=1"), 1_000, tmp_path / "other")
    assert others.report["corpus_sha256"] != made.report["corpus_sha256"]


def test_a_run_on_stories_says_so_in_its_folder_and_speaks(tmp_path):
    tiny = ["context=32", "n_layer=1", "n_head=2", "d_model=32", "batch_tokens=256", "eval_tokens=512", "vocab_size=400"]
    sets = [part for change in tiny for part in ("--set", change)]
    done = andrea("train", "--corpus", "stories", "--language", "en", "--stories", 60, "--steps", 3, "--out", "run", *sets, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "text: 60 stories, " in done.stdout and " files" not in done.stdout
    kept = json.loads((tmp_path / "run/run.json").read_text(encoding="utf-8"))["config"]["data"]
    assert (kept["corpus"], kept["language"], kept["stories"], kept["paths"]) == ("stories", "en", 60, [])
    (tmp_path / "other.txt").write_text("Mia has a red kite. Her kite is red.\n" * 9, encoding="utf-8")
    done = andrea("eval", "run", "other.txt", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["bytes"] == 37 * 9


def test_the_command_shows_stories_their_labels_and_pairs(tmp_path):
    done = andrea("stories", "--language", "sv", "-n", 2, "--first", 5, "--json", cwd=tmp_path)
    told = json.loads(done.stdout)["stories"]
    assert [(s["index"], s["text"]) for s in told] == [(i, story(0, i, "sv").text) for i in (5, 6)]
    assert told[0]["words"][0]["start"] == 0 and told[0]["facts"][0]["kind"]
    done = andrea("stories", "-n", 1, "--labels", cwd=tmp_path)
    assert story(0, 0, "en").text in done.stdout and "states" in done.stdout and "between" in done.stdout
    done = andrea("stories", "--pairs", "-n", 4, "--seed", 3, cwd=tmp_path)
    assert all(pair.wrong in done.stdout for pair in pairs(3, 4))
    done = andrea("stories", "--pairs", "-n", 4, "--seed", 3, "--json", cwd=tmp_path)
    assert [pair["kind"] for pair in json.loads(done.stdout)["pairs"]] == ["agreement-0", "agreement-1", "agreement-2", "recall"]


def test_what_contradicts_itself_or_is_not_there_is_refused(tmp_path, text_file):
    none = "there are no stories in language='fi'; there are some in en and sv"
    check(
        [
            ("train", "--corpus", "stories", "--language", "fi", none),
            ("data", "--corpus", "stories", "--language", "fi", "--out", "p", none),
            ("stories", "--language", "fi", none),
            ("train", "--language", "sv", "language and stories are for the corpus 'stories', not 'library'"),
            ("demo", "--language", "sv", "language and stories are for the corpus 'stories'"),
            ("plan", "--stories", "5", "language and stories are for the corpus 'stories'"),
            ("train", text_file, "--language", "sv", "give --corpus stories, or leave them out"),
            ("train", text_file, "--corpus", "stories", "the text is named twice, by arguments and the corpus"),
            ("data", text_file, "--corpus", "library", "--out", "p", "the text is named twice, by arguments and the corpus"),
            ("plan", "--set", "data.paths=x", "--corpus", "stories", "the text is named twice, by data.paths and the corpus"),
            ("train", "--resume", "r", "--language", "sv", "leave out --language"),
            ("train", "--corpus", "storys", "did you mean 'stories'?"),
            ("data", "--corpus", "stories", "--stories", "0", "--out", "p", "stories=0 must be at least 1"),
            ("stories", "-n", "0", "-n 0 must be at least 1"),
            ("stories", "--pairs", "--labels", "leave out --labels and --first"),
        ],
        tmp_path,
        2,
    )
    assert list(tmp_path.iterdir()) == []
