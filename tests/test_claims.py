"""Claims: statistics against published values and simulations, runs as processes, evidence, verification, report, untrained models."""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from andrea.claims import (
    gelu_form,
    identity_init,
    layer_norm,
    mlp_share,
    parameter_share,
    pre_post_norm_init,
    residual_depth,
    residual_gradient,
)
from andrea.claims.claim import Arm, Claim, Question, names, open_claim
from andrea.claims.evidence import RECORDED, Run, chosen_rates, file_of, read_runs, record, recorded, short
from andrea.claims.history import FACTS
from andrea.claims.report import card, cards, data, figure, latex, markdown, page, sentence_rows, table, written
from andrea.claims.run import Began, Failed, Judged, Noise, RatesChosen, RunDone, judged, run
from andrea.claims.sentences import SENTENCES
from andrea.claims.verdict import (
    NO_DIFFERENCE,
    REVERSED,
    SUPPORTED,
    UNDECIDED,
    estimate,
    holm,
    judge,
    seeds_for_a_verdict,
    share_interval,
    sign_test,
    t_quantile,
)
from andrea.claims.verify import Verified, claim_of, verify
from andrea.cli import app
from andrea.config import ModelConfig, RunConfig, TrainConfig

ROOT = Path(__file__).resolve().parent.parent
BASE = RunConfig(ModelConfig(context=16, d_model=12), train=TrainConfig(batch_tokens=16, steps=1))


def a_claim(*questions, arms=("one", "other"), seeds=range(5), **changed):
    words = dict.fromkeys(("sentence", "means", "published", "controls"), "words")
    given = {"base": BASE, "measure": lambda task, arm: {}, "section": "0", "sources": ("none",), **words, **changed}
    return Claim(name="toy", arms={arm: Arm() for arm in arms}, questions=questions, seeds=tuple(seeds), **given)


def asked(name="q", margin=0.05, **changed):
    return Question(name, lambda f: f["one"]["loss"] - f["other"]["loss"], margin, **changed)


def drawn(effect, seeds, noise=0.1, generator=None):
    """Losses of two arms: a seed moves both alike, and each a little on its own."""
    generator = generator or random.Random(1)
    found = {}
    for seed in seeds:
        both = generator.gauss(0, 1)
        found[seed] = {arm: {"loss": both + generator.gauss(0, noise)} for arm in ("one", "other")}
        found[seed]["one"]["loss"] += effect
    return found


# --- statistics ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "df", "published"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.995, 7, 3.499),
        (0.95, 30, 1.697),
        (0.975, 120, 1.980),
    ],
)
def test_t_quantiles_are_those_of_the_printed_tables(p, df, published):
    assert t_quantile(p, df) == pytest.approx(published, abs=5e-4)


def test_exact_intervals_and_corrections_are_those_of_the_printed_tables():
    assert share_interval(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert share_interval(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    assert share_interval(10, 10)[1] == 1
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # Wright 1992's worked example
    assert sign_test(6, 0) == 2 / 64
    assert sign_test(3, 3) == 1


def test_what_is_true_by_construction_is_supported_and_what_is_false_is_reversed():
    claim = a_claim(asked())
    assert judge(claim, drawn(-0.5, claim.seeds)).verdict == SUPPORTED
    assert judge(claim, drawn(+0.5, claim.seeds)).verdict == REVERSED


def test_equal_arms_show_no_difference():
    claim = a_claim(asked())
    assert judge(claim, drawn(0.0, claim.seeds, noise=0.0)).verdict == NO_DIFFERENCE  # the very same runs
    assert judge(claim, drawn(0.0, claim.seeds, noise=0.01)).verdict == NO_DIFFERENCE


def test_too_few_seeds_decide_nothing_however_large_the_difference():
    claim = a_claim(asked())
    for seeds in (range(0), range(1), range(2)):
        assert judge(claim, drawn(-100, seeds)).verdict == UNDECIDED
    half = drawn(-100, range(5))
    for seed in (2, 3, 4):
        del half[seed]["other"]
    found = judge(claim, half)  # a seed without its pair does not count
    assert (found.verdict, found.seeds) == (UNDECIDED, (0, 1))


@pytest.mark.parametrize("n_questions", [1, 5])
@pytest.mark.parametrize("n_seeds", [3, 8])
def test_at_most_one_null_in_twenty_is_called_supported(n_questions, n_seeds):
    claim = a_claim(*(Question(f"q{i}", lambda f, i=i: f["one"][f"x{i}"], 0.0) for i in range(n_questions)), seeds=range(n_seeds))
    generator, verdicts = random.Random(n_questions * 100 + n_seeds), Counter()
    for _ in range(1000):
        figures = {s: {"one": {f"x{i}": generator.gauss(0, 1) for i in range(n_questions)}, "other": {}} for s in range(n_seeds)}
        answers = judge(claim, figures).answers
        verdicts[SUPPORTED] += any(a.verdict == SUPPORTED for a in answers)
        verdicts[REVERSED] += any(a.verdict == REVERSED for a in answers)
    assert verdicts[SUPPORTED] <= 50, verdicts
    assert 10 <= verdicts[SUPPORTED] + verdicts[REVERSED] <= 75, verdicts  # 50 expected, standard deviation 7


def test_shares_are_decided_by_their_exact_test():
    claim = a_claim(asked(kind="share", unit="share of runs"), seeds=range(8))
    losses = lambda one, other: {s: {"one": {"loss": one(s)}, "other": {"loss": other(s)}} for s in range(8)}
    all_ways, never, half = lambda s: 1, lambda s: 0, lambda s: s % 2
    assert judge(claim, losses(never, all_ways)).verdict == SUPPORTED
    assert judge(claim, losses(all_ways, never)).verdict == REVERSED
    assert judge(claim, losses(never, half)).verdict == UNDECIDED  # 4 of 4 is p 0.125
    assert judge(replace(claim, questions=(asked(kind="share", margin=0.6),)), losses(half, half)).verdict == NO_DIFFERENCE
    with pytest.raises(ValueError, match="-1, 0 or 1"):
        judge(claim, losses(never, lambda s: 0.5))


def test_differences_that_do_not_vary_are_decided_by_their_signs():
    same = {s: {"one": {"loss": 0}, "other": {"loss": 1}} for s in range(6)}
    assert judge(a_claim(asked(), seeds=range(6)), same).verdict == SUPPORTED  # p 0.031
    assert judge(a_claim(asked(), seeds=range(5)), same).verdict == UNDECIDED  # p 0.0625


def test_arithmetic_takes_one_seed_and_must_not_vary():
    claim = a_claim(asked(kind="exact"), seeds=(0,))
    assert judge(claim, {0: {"one": {"loss": 0}, "other": {"loss": 1}}}).verdict == SUPPORTED
    with pytest.raises(ValueError, match="changes with the seed"):
        judge(a_claim(asked(kind="exact")), drawn(0, range(5)))


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="question 'q' gives nan for seed 3"):
        judge(a_claim(asked(), seeds=(3,)), {3: {"one": {"loss": float("nan")}, "other": {"loss": 1}}})
    with pytest.raises(ValueError, match="question 'q' cannot be answered from the figures of seed 3: KeyError: 'loss'"):
        judge(a_claim(asked(), seeds=(3,)), {3: {"one": {}, "other": {}}})


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ((SUPPORTED, SUPPORTED), SUPPORTED),
        ((SUPPORTED, REVERSED), REVERSED),
        ((SUPPORTED, NO_DIFFERENCE), NO_DIFFERENCE),
        ((UNDECIDED, NO_DIFFERENCE), UNDECIDED),
        ((UNDECIDED, REVERSED), REVERSED),
    ],
)
def test_a_claim_is_as_good_as_the_questions_it_needs(verdicts, whole):
    shift, noise = {SUPPORTED: -1.0, REVERSED: 1.0, NO_DIFFERENCE: 0.0, UNDECIDED: 0.05}, random.Random(0)
    parts = [Question(str(i), lambda f, i=i: f["one"][str(i)], 0.05) for i in range(2)]
    beside = Question("beside", lambda f: 7.0 + f["one"]["0"], 0.05, needed=False)
    figures = {
        s: {"one": {str(i): shift[v] + noise.gauss(0, 0.3 if v == UNDECIDED else 0.001) for i, v in enumerate(verdicts)}, "other": {}}
        for s in range(6)
    }
    found = judge(a_claim(*parts, beside, seeds=range(6)), figures)
    assert (found.verdict, [a.verdict for a in found.answers[:2]]) == (whole, list(verdicts))


def test_the_number_of_seeds_that_is_told_decides_four_times_in_five():
    generator, question = random.Random(5), asked(margin=0.0)
    sample = [(x - 9.5) / 5.9160798 - 0.5 for x in range(20)]  # mean -0.5, standard deviation 1
    wanted = seeds_for_a_verdict(question, sample, 1)
    assert 30 <= wanted <= 38  # the textbook's: (1.96 + 0.84)^2 / 0.5^2 = 31.4, and a little for t
    decided = 0
    for _ in range(400):
        values = [generator.gauss(-0.5, 1) for _ in range(wanted)]
        decided += estimate(question, values).p <= 0.05
    assert 0.72 <= decided / 400 <= 0.88
    assert seeds_for_a_verdict(question, [0.1], 1) is None
    assert seeds_for_a_verdict(question, [1e-9, -1e-9, 1.0, -1.0], 1) is None  # a mean of 0 and no margin: never


# --- a claim of somebody's own, run by processes --------------------------------------------------------------------------------------

MINE = '''"""A claim of my own."""
import math
import os
import random
import sys
import time

from andrea.claims.claim import Arm, Claim, Question
from andrea.config import ModelConfig, RunConfig, TrainConfig
from besides import effect_of  # lies beside this file


def measure(task, arm):
    """A loss that a seed moves in both arms alike."""
    print("what a claim prints is no answer")
    own = random.Random(f"{task.arm} {task.seed}").gauss(0, 0.05)
    off = math.log2(task.config.optim.lr / BEST)
    loss = random.Random(task.seed).gauss(3, 1) + own + effect_of(task.arm) + 0.01 * off * off
    return {"loss": loss, "seed": task.config.train.seed, "pid_ms": os.getpid(), "curve": [[0, 9.0], [1, loss]], "diverged": False}


BEST = 1e-3
CLAIM = Claim(
    name="mine",
    section="0",
    sentence="One is lower than other.",
    means="Its loss is.",
    published="Nothing.",
    sources=("nobody",),
    controls="None.",
    arms={"one": Arm(), "other": Arm(("optim.momentum=0.5",))},
    base=RunConfig(ModelConfig(context=16, d_model=12), train=TrainConfig(batch_tokens=16, steps=1)),
    measure=measure,
    questions=(Question("one against other", lambda f: f["one"]["loss"] - f["other"]["loss"], 0.01),),
    seeds=tuple(range(6)),
)
'''


@pytest.fixture
def mine(tmp_path):
    """The file of a stranger's claim, and a module of theirs beside it."""

    def write(*changes):
        text = MINE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        folder = tmp_path / "theirs"
        folder.mkdir(exist_ok=True)
        (folder / "besides.py").write_text("def effect_of(arm):\n    return {'one': -1.0, 'other': 0.0}[arm]\n", encoding="utf-8")
        (folder / "mine.py").write_text(text, encoding="utf-8")
        sys.modules.pop("besides", None)
        return open_claim(str(folder / "mine.py"))

    yield write
    sys.path[:] = [place for place in sys.path if place != str(tmp_path / "theirs")]


def last(events):
    *_, event = events
    return event


def test_a_strangers_file_with_a_module_of_its_own_runs_to_a_verdict(mine, tmp_path):
    opened, events = mine(), []
    for event in run(opened, tmp_path / "e", jobs=2):
        events.append(event)
    began, first, *_, end = events
    assert isinstance(began, Began) and (began.done, began.to_do, began.jobs) == (0, 12, 2)
    design = json.loads((tmp_path / "e/mine/design.json").read_text(encoding="utf-8"))
    assert (design["design"], design["source"]) == (opened.design, opened.source)
    assert [e for e in events if isinstance(e, RunDone)][-1].to_do == 0
    assert isinstance(end, Judged) and end.judgement.verdict == SUPPORTED and end.left == 0
    kept = json.loads(file_of(tmp_path / "e/mine", "other", 3, 1).read_text(encoding="utf-8"))
    assert kept["config"]["optim"]["momentum"] == 0.5 and kept["config"]["train"]["seed"] == kept["figures"]["seed"] == 3
    assert {"processor", "torch", "commit"} <= kept["machine"].keys()
    (noise,) = (e for e in events if isinstance(e, Noise))
    assert noise.arm == "one" and noise.seeds == 3 and noise.sd > 0.1
    assert isinstance(first, RunDone)


GROWS = """
import torch
from torch import nn

from andrea.claims.grow import SMALL, grow
from andrea.config import override
from andrea.model import Transformer


class Scaled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x):
        return self.scale * self.inner(x)


def scaled(config):
    model = Transformer(config)
    for block in model.blocks:
        block.mlp.act = Scaled(block.mlp.act)
    return model


def measure(task, arm):
    return grow(task, arm.build, evaluate_at=(1,))

"""


def test_a_strangers_claim_trains_a_model_with_a_module_of_its_own(mine, tmp_path, text_file, monkeypatch):
    small = ("n_layer=2", "n_head=2", "d_model=32", "context=24", "vocab_size=300", "batch_tokens=48", f"data.paths={text_file}")
    opened = mine(
        ("CLAIM = ", f"{GROWS}CLAIM = "),
        ('"other": Arm(("optim.momentum=0.5",))', '"other": Arm(build=scaled)'),
        ("    base=RunConfig(ModelConfig(context=16, d_model=12), train=TrainConfig(batch_tokens=16, steps=1)),\n", ""),
        ("    measure=measure,", f"    base=override(SMALL, 'train.steps=3', *{small!r}),\n    measure=measure,"),
        ("seeds=tuple(range(6))", "seeds=(0, 1)"),
    )
    monkeypatch.chdir(tmp_path)
    code, said, _ = andrea("run", opened.target, "--full", "--jobs", 1)
    # three steps end above what the frequency of tokens alone has
    assert code == 0 and "diverged: one 2 of 2, other 2 of 2\nevery run of every arm diverged, so nothing was compared" in said
    found = {run.key: run.figures for run in read_runs(tmp_path / "evidence/mine", opened)}
    assert all(len(figures["curve"]) == 2 and figures["steps_done"] == 3 for figures in found.values())
    for seed in (0, 1):
        one, other = found["one", seed, 1.0], found["other", seed, 1.0]
        assert other["parameters"] == one["parameters"] + 2 and one["text"] == other["text"]
        assert one["curve"][0][1] != other["curve"][0][1]


def without_times(folder, opened):
    return {run.key: {name: value for name, value in run.figures.items() if name != "pid_ms"} for run in read_runs(folder, opened)}


def test_a_run_that_was_stopped_goes_on_and_equals_one_that_was_not(mine, tmp_path):
    opened = mine()
    whole = last(run(opened, tmp_path / "whole", quick=False, jobs=2))
    events = run(opened, tmp_path / "parts", quick=False, jobs=1)
    done = [event for event, _ in zip((e for e in events if isinstance(e, RunDone)), range(4), strict=False)]
    events.close()
    assert [(e.arm, e.seed) for e in done] == [("one", 0), ("one", 1), ("one", 2), ("other", 0)]  # noise first, then seed by seed
    begun, *_, rest = run(opened, tmp_path / "parts", quick=False, jobs=2)
    assert begun.done >= 4
    assert rest.judgement == whole.judgement
    assert without_times(tmp_path / "parts/mine", opened) == without_times(tmp_path / "whole/mine", opened)


def test_when_time_is_up_nothing_more_is_begun_and_what_is_left_is_told(mine, tmp_path):
    opened = mine()
    end = last(run(opened, tmp_path / "e", minutes=1e-9))
    assert (end.left, end.judgement.verdict) == (6 * 2, UNDECIDED) or end.left == 3 * 2
    assert last(run(opened, tmp_path / "e", quick=True)).left == 0


def test_a_quick_run_takes_the_first_seeds(mine, tmp_path):
    opened = mine()
    end = last(run(opened, tmp_path / "e", quick=True, jobs=1))
    assert end.judgement.seeds == (0, 1, 2) and end.judgement.planned == 6
    assert end.judgement.answers[0].verdict in (SUPPORTED, UNDECIDED)


def test_a_changed_design_is_refused_and_set_aside_on_request(mine, tmp_path):
    first = mine()
    last(run(first, tmp_path / "e", quick=True))
    same = mine(('published="Nothing."', 'published="Something, since."'), ("import math\n", "import math  # a word on it\n"))
    assert same.design == first.design
    for change in (
        ("0.01 * off", "0.02 * off"),
        ('f["one"]["loss"] - f', 'f["one"]["loss"] - 2 * f'),
        ("range(6)", "range(7)"),
        ("Its loss is.", "More."),
    ):
        changed = mine(change)
        assert changed.design != first.design, change
        with pytest.raises(ValueError, match=r"another design of mine.*--anew"):
            last(run(changed, tmp_path / "e"))
    end = last(run(changed, tmp_path / "e", anew=True, quick=True))
    assert end.left == 0
    assert len(list((tmp_path / "e").iterdir())) == 2
    foreign = next((tmp_path / "e").glob("mine-*/one-0-1.json"))
    (tmp_path / "e/mine/one-5-1.json").write_bytes(foreign.read_bytes())
    with pytest.raises(ValueError, match="belongs to another design"):
        read_runs(tmp_path / "e/mine", changed)


def test_two_processes_do_not_fill_one_folder(mine, tmp_path):
    opened = mine()
    events = run(opened, tmp_path / "e", jobs=1)
    next(events)
    next(events)
    with pytest.raises(ValueError, match="filled by another process"):
        last(run(opened, tmp_path / "e"))
    events.close()


TUNED = ("    seeds=tuple(range(6)),", "    seeds=tuple(range(6)),\n    rates=(1.0, 2.0, 4.0),\n    tuning_seeds=(100, 101),")


def test_rates_are_tuned_on_their_own_seeds_and_the_grid_grows_where_the_best_is_at_its_edge(mine, tmp_path):
    opened = mine(TUNED, ("BEST = 1e-3", "BEST = 5e-4"))  # half the configured rate: one beyond the edge of the grid
    events = list(run(opened, tmp_path / "e", quick=True, jobs=2))
    (chosen,) = (e for e in events if isinstance(e, RatesChosen))
    assert chosen.rates == {"one": 0.5, "other": 0.5}
    runs = read_runs(tmp_path / "e/mine", opened)
    tried = {run.rate for run in runs if run.seed in (100, 101)}
    assert tried == {0.25, 0.5, 1, 2, 4}
    assert {run.rate for run in runs if run.seed < 100} == {0.5}
    assert all(e.seed >= 100 for e in events[1:21] if isinstance(e, RunDone)), "no seed of the verdict before the rates are settled"
    kept = json.loads(file_of(tmp_path / "e/mine", "one", 0, 0.5).read_text(encoding="utf-8"))
    assert kept["config"]["optim"]["lr"] == 0.5e-3 and kept["config"]["optim"]["matrix_lr"] == 0.01


def test_a_grid_grows_twice_at_most(mine):
    opened = mine(TUNED)
    claim = opened.claim
    falling = [Run("one", seed, rate, {"loss": -rate}, 1.0, {}) for seed in (100, 101) for rate in (1, 2, 4, 8, 16)]
    assert chosen_rates(claim, falling) == {"one": 16}
    assert chosen_rates(claim, falling[:-1]) == {}  # the last seed has not tried the last rate
    with pytest.raises(ValueError, match="tunes by 'loss', which its runs do not measure"):
        chosen_rates(claim, [Run("one", 100, 1.0, {"other": 1}, 1.0, {})])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("raise KeyError('no such thing')", "arm one, seed 0, rate 1: KeyError"),
        ("return {'loss': float('nan')}", "Out of range float values"),
        ("return {'loss': 'low'}", "the figure 'loss' is 'low'; wanted a number"),
        ("raise SystemExit(5)", "SystemExit: 5"),
        ("raise ValueError(input())", "EOFError"),
        ("os._exit(3)", "its process died (exit code 3)"),
    ],
)
def test_a_run_that_fails_says_which_and_why(mine, tmp_path, change, message):
    opened = mine(("    own = random", f"    {change}\n    own = random"))
    with pytest.raises(Failed, match=re.escape(message)):
        last(run(opened, tmp_path / "e", jobs=1))


@pytest.mark.skipif(sys.platform == "win32", reason="looks at processes as POSIX does")
def test_a_killed_parent_leaves_no_child(mine, tmp_path):
    opened = mine(
        ("    own = random", f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)\n    own = random")
    )
    command = [sys.executable, "-m", "andrea", "claims", "run", opened.target, "--jobs", "1", "--out", str(tmp_path / "e")]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(encoding="utf-8"))
    child = int((tmp_path / "pid").read_text(encoding="utf-8"))
    parent.kill()
    parent.wait()
    until(lambda: not alive(child))


def alive(pid):
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split(")")[1][:3]
    except (ProcessLookupError, FileNotFoundError):
        return False


def until(is_so):
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("a minute has passed")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arms": ()}, "needs arms"),
        ({"arms": ("a", "A")}, "differ by more than capitals"),
        ({"arms": ("a/b", "c")}, "names a file"),
        ({"seeds": ()}, "needs seeds"),
        ({"tuning_seeds": (0,), "seeds": (0, 1)}, "none of its tuning_seeds among them"),
        ({"rates": (1.0, 2.0)}, "no tuning_seeds"),
        ({"rates": (0.0,)}, "factors above 0"),
        ({"baseline": "none"}, "no arm 'none'"),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        a_claim(asked(), **changed)
    with pytest.raises(ValueError, match="needs questions"):
        a_claim()


def test_what_is_no_claim_is_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'gelu-form'"):
        open_claim("gelu-from")
    with pytest.raises(FileNotFoundError, match="is not there"):
        open_claim(str(tmp_path / "nothing.py"))
    (tmp_path / "empty.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no CLAIM"):
        open_claim(str(tmp_path / "empty.py"))
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be loaded: ModuleNotFoundError"):
        open_claim(str(tmp_path / "broken.py"))
    with pytest.raises(ValueError, match="jobs=0"):
        last(run(open_claim("gelu-form"), tmp_path, jobs=0))


# --- verification -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def evidence(mine, tmp_path):
    opened = mine()
    last(run(opened, tmp_path / "e", quick=False, jobs=2))
    return opened, tmp_path / "e/mine"


def edit(path, change):
    found = json.loads(path.read_text(encoding="utf-8"))
    change(found)
    path.write_text(json.dumps(found), encoding="utf-8")


def test_honest_evidence_holds_exactly_on_the_same_machine(evidence):
    opened, folder = evidence
    *checks, end = verify(folder, opened, n=4, jobs=2)
    assert [check.how for check in checks] == ["equal"] * 4
    assert isinstance(end, Verified) and end.holds and (end.runs, end.checked) == (12, 4)
    assert claim_of(folder) == "mine"
    assert not last(verify(folder, opened, minutes=1e-9)).holds  # nothing done is nothing shown


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda found: found["figures"].update(loss=found["figures"]["loss"] - 1e-9), "on the same machine and versions"),
        (lambda found: found["figures"].pop("curve"), "other figures: curve"),
        (lambda found: found["config"]["optim"].update(lr=2e-3), "its configuration is not the one"),
        (lambda found: found.update(arm="third"), "the name of another run"),
        (lambda found: found.update(arm="two"), "the name of another run"),
        (lambda found: found.update(rate=-1.0), "the name of another run"),
    ],
)
def test_tampered_evidence_does_not_hold(evidence, change, how):
    opened, folder = evidence
    edit(folder / "one-2-1.json", change)
    *checks, end = verify(folder, opened, n=12)
    assert not end.holds
    assert any(how in check.how for check in checks if not check.holds), checks
    assert sum(check.holds for check in checks) >= 11  # the others do


def test_another_machines_evidence_holds_within_the_noise_of_seeds(evidence):
    opened, folder = evidence
    for path in folder.glob("*-1.json"):
        edit(path, lambda found: found["machine"].update(processor="another"))
    nudge = lambda by: lambda found: found["figures"].update(loss=found["figures"]["loss"] + by)
    edit(folder / "one-2-1.json", nudge(0.1))
    end = last(verify(folder, opened, n=12))
    assert end.holds
    edit(folder / "one-3-1.json", nudge(50))
    *checks, end = verify(folder, opened, n=12)
    assert not end.holds
    assert "seeds vary by" in next(check.how for check in checks if not check.holds)


def test_a_folder_that_is_no_evidence_is_refused(evidence, mine, tmp_path):
    opened, folder = evidence
    with pytest.raises(ValueError, match="no evidence of a claim"):
        last(verify(tmp_path, opened))
    with pytest.raises(ValueError, match="no evidence of a claim"):
        claim_of(tmp_path)
    with pytest.raises(ValueError, match="another design of mine"):
        last(verify(folder, mine(("range(6)", "range(7)"))))
    edit(folder / "one-2-1.json", lambda found: found.update(format_version=99))
    with pytest.raises(ValueError, match="format_version is 99"):
        last(verify(folder, opened))
    for path in folder.glob("*-1.json"):
        path.unlink()
    with pytest.raises(ValueError, match="no run yet"):
        last(verify(folder, opened))


# --- what is recorded, and the report -----------------------------------------------------------------------------------------------


def test_the_compact_form_gives_the_same_judgement(evidence, tmp_path):
    opened, folder = evidence
    runs = read_runs(folder, opened)
    record(opened, runs, tmp_path / "kept")
    kept = recorded(opened, tmp_path / "kept")
    assert kept.is_current and len(kept.runs) == 12
    before, after = judged(opened, runs, {}), judged(opened, kept.runs, {})
    assert after.verdict == before.verdict
    assert after.answers[0].mean == pytest.approx(before.answers[0].mean, abs=1e-5)
    changed = replace(opened, source=opened.source + "\nX = 1\n")
    assert not recorded(changed, tmp_path / "kept").is_current
    assert recorded(opened, tmp_path / "none").runs == []
    curve = [[step, 1 / (step + 1)] for step in range(100)]
    assert len(short({"curve": curve})["curve"]) <= 17 and short({"curve": curve})["curve"][-1] == [99, 0.01]


def test_a_sentence_that_hangs_on_one_question_has_its_verdict():
    hanging = [s for s in SENTENCES if s.question]
    assert hanging and all(s.question in {q.name for q in open_claim(s.claims[0]).claim.questions} for s in hanging)
    row = next(r for r in sentence_rows(cards()) if r["id"] == "7.4b")
    assert row["verdict"] == "supported here (what blocks add to selectivity, untrained less trained)"


def test_every_recorded_run_is_of_the_claim_as_it_stands_and_all_are_small():
    assert sum(path.stat().st_size for path in RECORDED.glob("*.json")) < 250_000
    for path in RECORDED.glob("*.json"):
        opened = open_claim(path.stem.replace("_", "-"))
        assert recorded(opened).is_current, f"{path.name} was recorded for another design; record it again"


def test_the_report_says_what_the_evidence_says_and_nothing_else(evidence):
    opened, folder = evidence
    first = card(opened, folder.parent)
    (answer,) = first.judgement.answers
    shown = [f"{answer.mean:+.4g}", f"{answer.low:+.4g} to {answer.high:+.4g}", answer.verdict]
    for text in (markdown([first]), page([first]), latex([first])):
        assert all(part in text for part in shown)
    assert page([first]).count('class="dot"') == 6 == figure(first).count('class="dot"')
    assert len(table([first]).splitlines()) == 1 + 12 * 7  # loss, seed, diverged, four of the curve; not the time
    assert "0 of 6" in markdown([first])
    for path in folder.glob("one-*.json"):
        edit(path, lambda found: found["figures"].update(loss=found["figures"]["loss"] + 2))
    second = card(opened, folder.parent)
    assert second.verdict == REVERSED
    for text in (markdown([second]), page([second]), latex([second])):
        assert not any(part in text for part in shown[:2])
    for path in folder.glob("*-1.json"):
        path.unlink()
    third = card(opened, folder.parent)
    assert third.verdict == "not tried yet"
    section = markdown([third]).split("## mine")[1].split("## Who")[0]
    assert "No run yet." in section and not re.search(r"\d\.\d", section.replace("momentum=0.5", ""))


def test_the_page_loads_nothing_and_names_every_claim():
    found = cards()
    text = page(found)
    assert "<script" not in text and "default-src 'none'" in text
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#)\w", text)
    for name in names():
        assert f'id="{name}"' in text
    assert json.loads(json.dumps(data(found), allow_nan=False))["history"]


def test_the_page_in_docs_is_what_the_evidence_says():
    assert (ROOT / "docs/claims.md").read_text(encoding="utf-8") == markdown(cards()), "run: andrea claims report"


def test_everything_that_is_asked_for_is_written(evidence, tmp_path):
    opened, folder = evidence
    paths = written([card(opened, folder.parent)], tmp_path / "book", ("csv", "latex", "svg"))
    assert [path.name for path in paths] == ["claims.md", "claims.html", "claims.csv", "claims.tex", "claims-mine.svg"]
    assert all(path.stat().st_size > 100 for path in paths)


def test_every_claim_stands_for_a_sentence_and_every_sentence_has_an_id_of_its_own():
    named = {name for sentence in SENTENCES for name in sentence.claims}
    assert set(names()) <= named
    assert len({sentence.id for sentence in SENTENCES}) == len(SENTENCES)
    assert all(sentence.claims or sentence.command for sentence in SENTENCES)
    assert all(fact.source and fact.who for fact in FACTS)


# --- what untrained models do, against what is published ------------------------------------------------------------------------------


def test_the_proofs_conditions_give_the_proofs_numbers(one_thread):
    """Xiong et al. 2020: Lemma 2 and Theorem 1, here D 64 and two seeds; the exponents of L are 0 and -1/2."""
    base = replace(
        pre_post_norm_init.CLAIM,
        base=replace(pre_post_norm_init.CLAIM.base, model=replace(pre_post_norm_init.CLAIM.base.model, d_model=64)),
    )
    seen = {
        arm: [pre_post_norm_init.measure(base.task(arm, seed), base.arms[arm]) for seed in range(2)]
        for arm in ("pre, proof", "post, proof")
    }
    for figures in seen["pre, proof"]:
        for block, square in enumerate(figures["square"]):
            assert 1 + block / 2 <= square * 1.05 and square / 1.05 <= 1 + 3 * block / 2
        assert figures["w2"][0] > figures["w2"][-1]  # in pre-norm the early layers' gradients are the larger ones
    for figures in seen["post, proof"]:
        assert figures["square"][1:] == pytest.approx([1.0] * 12, abs=1e-3)  # each block ends with a norm
        assert figures["stream"][-1] > figures["stream"][1]  # in post-norm the late ones'
    mean = lambda arm: sum(figures["exponent"] for figures in seen[arm]) / 2
    assert mean("pre, proof") == pytest.approx(-0.5, abs=0.1)
    assert mean("post, proof") == pytest.approx(0, abs=0.1)


def test_without_residuals_the_signal_is_lost_and_the_gradient_only_without_norms(one_thread):
    c = replace(residual_gradient.CLAIM.base.model, n_layer=12, d_model=64, residual=False)
    plain = residual_gradient.at_depth(c, 0, Arm())
    bare = residual_gradient.at_depth(replace(c, norm="none"), 0, Arm())
    kept = residual_gradient.at_depth(replace(c, residual=True), 0, Arm())
    assert plain["cosine"] > 0.99 and bare["cosine"] > 0.99 and kept["cosine"] < 0.7  # Dong et al. 2021: rank one
    assert bare["embedding"] < -40 and abs(kept["embedding"]) < 0.3
    assert plain["embedding"] > -3
    assert plain["query_key_last"] < -2  # Noci et al. 2022: queries and keys get nothing
    assert abs(plain["profile"][-1]) == 0


def test_with_residuals_the_gradient_keeps_its_size_through_256_layers(one_thread):
    claim = residual_depth.CLAIM
    assert residual_depth.farthest(residual_depth.measure(claim.task("pre-norm", 0), claim.arms["pre-norm"])) < 0


def test_a_norm_holds_the_range_that_is_left_without(one_thread):
    claim = layer_norm.CLAIM
    ranges = {
        arm: layer_norm.measure(claim.task(arm, 0), claim.arms[arm])["48"]["range"] for arm in ("pre-norm, xavier", "no norm, xavier")
    }
    assert ranges["pre-norm, xavier"] < 2 and ranges["no norm, xavier"] > 8


def test_only_a_block_whose_last_matrices_are_zero_begins_as_the_identity(one_thread):
    small = replace(
        identity_init.CLAIM, base=replace(identity_init.CLAIM.base, model=replace(identity_init.CLAIM.base.model, n_layer=4, d_model=96))
    )
    worst = {arm: identity_init.measure(small.task(arm, 0), Arm())["worst"] for arm in ("120m", "120m, zero")}
    assert worst["120m, zero"] == pytest.approx(1, abs=1e-6)
    assert worst["120m"] < 0.95


def test_counts_and_gelu_are_the_exact_ones():
    share = parameter_share.measure(parameter_share.CLAIM.task("ANDREA-120M", 0), Arm())
    assert (share["total"], share["trunk"], share["share"]["distinct"]) == (92_331_264, 85_054_464, pytest.approx(0.921, abs=5e-4))
    assert mlp_share.measure(mlp_share.CLAIM.task("ANDREA-120M", 0), Arm())["share"]["distinct"] == pytest.approx(0.613, abs=5e-4)
    figures = gelu_form.measure(gelu_form.CLAIM.task("tanh form", 0), Arm())
    assert figures["zero"] == 0 and figures["stated"] < 5e-8
    assert (figures["error"], figures["falls_until"]) == (pytest.approx(4.73e-4, rel=0.01), pytest.approx(-0.7525, abs=1e-3))


# --- the command ----------------------------------------------------------------------------------------------------------------------


def andrea(*args):
    """The command, in this process: its exit code, what it printed, and the message of what it raised."""
    done = CliRunner().invoke(app, ["claims", *map(str, args)])
    return done.exit_code, done.stdout, str(done.exception or "")


def test_the_command_runs_reports_and_verifies(mine, tmp_path, monkeypatch):
    opened = mine()
    monkeypatch.chdir(tmp_path)
    code, said, _ = andrea("run", opened.target, "--jobs", 2)
    assert code == 0
    for part in (
        "design ",
        "runs/hour",
        "noise: loss of one",
        "a trend of 3 of 6 seeds",
        "mine, 3 of 6 seeds so far: ",
        "one against other",
    ):
        assert part in said, part
    code, said, _ = andrea("run", opened.target, "--full", "--json")
    assert (code, json.loads(said.splitlines()[-1])["verdict"]) == (0, SUPPORTED)
    code, said, _ = andrea("verify", "evidence", "--file", opened.target, "--json")
    assert code == 0 and json.loads(said.splitlines()[-1])["holds"]
    edit(tmp_path / "evidence/mine/one-0-1.json", lambda found: found["figures"].update(loss=0.0))
    code, said, _ = andrea("verify", "evidence/mine", "--file", opened.target, "--runs", 12)
    assert code == 1 and "mine: does not hold; 1 of 12 do not hold" in said
    assert "--record keeps runs in the package" in andrea("run", opened.target, "--record")[2]
    assert "--runs 0 must be at least 1" in andrea("verify", "evidence", "--runs", 0)[2]
    assert "runs of mine, which is none of our claims; name its file: --file" in andrea("verify", "evidence")[2]
    assert "none is not there" in andrea("report", "--evidence", "none")[2]
    written = json.loads(andrea("report", opened.target, "--evidence", "evidence", "--out", "own", "--json")[1])["written"]
    assert written == [str(Path("own/claims.md")), str(Path("own/claims.html"))]
    assert "## mine: " in Path("own/claims.md").read_text(encoding="utf-8")
    code, said, _ = andrea("report", "--out", "book", "--evidence", "evidence", "--csv")
    assert code == 0 and said.split() == [
        "wrote",
        str(Path("book/claims.md")),
        "wrote",
        str(Path("book/claims.html")),
        "wrote",
        str(Path("book/claims.csv")),
    ]


def test_the_command_lists_the_sentences_and_the_history(tmp_path):
    listed = json.loads(andrea("--json")[1])
    assert [row["id"] for row in listed] == [sentence.id for sentence in SENTENCES]
    assert "residual-gradient" in andrea()[1]
    assert json.loads(andrea("history", "--json")[1])[0]["who"] == "Transformer, 2017"
    assert "Chinchilla" in andrea("history")[1]
    assert {c["name"] for c in json.loads(andrea("report", "--out", tmp_path, "--json")[1])["claims"]} == set(names())
