"""Evidence -> cards -> docs/claims.md, one page that loads nothing, CSV, LaTeX, figures.

All but the claims' own words comes from runs.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

from andrea.accounting import count
from andrea.claims.claim import SEEDS_NEEDED, Claim, Opened, names, open_claim
from andrea.claims.evidence import Run, by_seed, chosen_rates, read_runs, recorded
from andrea.claims.history import FACTS
from andrea.claims.run import recorded_rates
from andrea.claims.sentences import SENTENCES, Sentence
from andrea.claims.verdict import MOST_SEEDS, UNDECIDED, Answer, Judgement, judge
from andrea.claims.verify import leaves
from andrea.config import ModelConfig
from andrea.files import replace_text

NOT_TRIED = "not tried yet"


@dataclass(frozen=True)
class Card:
    """One claim and what its runs say."""

    claim: Claim
    design: str
    is_current: bool  # whether the runs were made for the claim as it stands here
    runs: Sequence[Run]
    rates: dict[str, float]
    judgement: Judgement

    @property
    def verdict(self) -> str:
        if not self.runs:
            return NOT_TRIED
        return self.judgement.verdict if self.is_current else f"{UNDECIDED} (recorded for an older design)"

    @property
    def seeds(self) -> str:
        done, planned = len(self.judgement.seeds), self.judgement.planned
        return f"{done} seed{'s' * (done != 1)}" if done == planned else f"{done} of {planned} seeds"

    def arms(self) -> list[dict[str, Any]]:
        """For each arm: what it changes, its exact size, the rate chosen, the mean of the figure that tunes, how many diverged."""
        table, c = by_seed(self.claim, self.runs, self.rates), self.claim
        rows = []
        for name, arm in c.arms.items():
            figures = [found[name] for found in table.values() if name in found]
            shape = c.task(name, c.seeds[0]).config.model
            n = count(shape)
            means = [f[c.tune_by] for f in figures if c.tune_by in f]
            rows.append(
                {
                    "arm": name,
                    "changes": " ".join(arm.changes) or "as it is",
                    "build": getattr(arm.build, "__name__", None),
                    "shape": words_of(shape),
                    "parameters": figures[0].get("parameters", n.trunk) if figures else n.trunk,
                    "rate": self.rates.get(name),
                    "mean": fmean(means) if means else None,
                    "diverged": self.judgement.diverged.get(name),
                    "curve": mean_curve([f["curve"] for f in figures if f.get("curve")]),
                }
            )
        return rows

    @property
    def tokens(self) -> int:
        """That each training learned from; 0 where nothing is trained. A run of several trainings tells its loss and not their tokens."""
        train = self.claim.base.train
        planned = (train.steps or 0) * (train.batch_tokens or 0)
        return max((run.figures.get("tokens", planned) for run in self.runs if "loss" in run.figures), default=0)

    def machines(self) -> list[str]:
        rows = [
            f"{m.get('processor')}, one core a run; Python {m.get('python')}, torch {m.get('torch')}"
            for m in (run.machine for run in self.runs)
        ]
        return list(dict.fromkeys(rows))

    def to_dict(self) -> dict[str, Any]:
        c = self.claim
        words = {name: getattr(c, name) for name in ("name", "section", "sentence", "means", "published", "sources", "controls")}
        found = {**self.judgement.to_dict(), "verdict": self.verdict, "design": self.design, "is_current": self.is_current}
        facts = {"arms": self.arms(), "tokens": self.tokens, "machines": self.machines(), "runs": len(self.runs), "hours": hours(self.runs)}
        return {**words, **found, **facts}


def hours(runs: Sequence[Run]) -> float:
    return sum(run.seconds for run in runs) / 3600


def mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float]]:
    """Of the seeds, at the steps that all of them have."""
    tables = [{point[0]: point[1] for point in curve} for curve in curves]
    steps = [step for step in tables[0] if all(step in table for table in tables)] if tables else []
    return [(step, fmean(table[step] for table in tables)) for step in steps]


def card(opened: Opened, evidence: Path | None = None) -> Card:
    """From the runs in evidence/NAME where there are some, otherwise from those that the package brings."""
    folder, kept = evidence and evidence / opened.claim.name, recorded(opened)
    runs = read_runs(folder, opened) if folder and (folder / "design.json").exists() else []
    is_current = True if runs else kept.is_current
    runs = runs or kept.runs
    rates = chosen_rates(opened.claim, runs, recorded_rates(opened)) if is_current else {}
    return Card(opened.claim, opened.design, is_current, runs, rates, judge(opened.claim, by_seed(opened.claim, runs, rates)))


def cards(evidence: Path | None = None, files: Sequence[str] = ()) -> list[Card]:
    """Our claims, and those of the files. Raises ValueError for a folder that is not there."""
    if evidence and not evidence.is_dir():
        raise ValueError(f"{evidence} is not there; `andrea claims run` makes such folders")
    return [card(open_claim(target), evidence) for target in (*names(), *files)]


def sentence_rows(all_cards: Sequence[Card]) -> list[dict[str, Any]]:
    """Every sentence with what shows it, and what came out so far."""
    by_name = {c.claim.name: c for c in all_cards}
    rows: list[dict[str, Any]] = []
    for s in SENTENCES:
        there = [by_name[name] for name in s.claims if name in by_name]
        command = s.command or "; ".join(f"andrea claims run {c.claim.name}" for c in there)
        each = [verdict if len(there) == 1 else f"{c.claim.name}: {verdict}" for c in there for verdict in [verdict_on(s, c)]]
        verdict = "; ".join(each) or ("" if s.command else NOT_TRIED)
        rows.append({"id": s.id, "sentence": s.text, "command": command, "verdict": verdict, "claims": [c.claim.name for c in there]})
    return rows


def verdict_on(s: Sentence, c: Card) -> str:
    asked = next((a for a in c.judgement.answers if a.question == s.question), None)
    return c.verdict if asked is None else f"{asked.verdict} ({asked.question})"


# --- words and numbers --------------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    return "" if value is None else f"{value:+.4g}"


def interval(a: Answer) -> str:
    return "exact" if a.kind == "exact" else "one seed" if a.low is None else f"{number(a.low)} to {number(a.high)}"


def to_go(a: Answer) -> str:
    """What a verdict would take, for a question that has none."""
    if a.verdict != UNDECIDED:
        return ""
    if len(a.values) < 2:
        return f"at least {SEEDS_NEEDED} seeds"
    return f"about {a.seeds_for_a_verdict} seeds would decide" if a.seeds_for_a_verdict else f"more than {MOST_SEEDS} seeds"


def words_of(c: ModelConfig) -> str:
    return f"D {c.d_model}, L {c.n_layer}, H {c.n_head}, M {c.mlp_width}, T {c.context}, V {c.vocab_size}"


def arm_table(c: Card) -> tuple[list[str], list[list[str]]]:
    """Column names and rows, without columns that would be empty."""
    columns, rows = (*ARM_COLUMNS, c.claim.tune_by, "diverged"), [arm_cells(row) for row in c.arms()]
    shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return [columns[i] for i in shown], [[row[i] for i in shown] for row in rows]


ARM_COLUMNS = ("arm", "changes", "shape", "parameters in blocks", "rate")  # then the figure that tunes, and how many diverged


def arm_cells(row: dict[str, Any]) -> tuple[str, ...]:
    rate, mean, diverged = row["rate"], row["mean"], row["diverged"]
    return (
        row["arm"],
        f"{row['changes']} {row['build'] or ''}".strip(),
        row["shape"],
        f"{row['parameters']:,}",
        "" if rate is None else f"{rate:g}",
        "" if mean is None else f"{mean:.4f}",
        "" if diverged is None else f"{diverged[0]} of {diverged[1]}",
    )


def setting(c: Card) -> str:
    """Size, tokens, machine, seeds, time: one sentence of what stands behind a card."""
    if not c.runs:
        return "No run yet."
    trained = f"{c.tokens:,} tokens a training" if c.tokens else "untrained models: nothing is learned"
    noise = f" Noise of seeds ({c.claim.base_arm}, {c.claim.tune_by}): {c.judgement.noise:.4f}." if c.judgement.noise is not None else ""
    runs = f"{len(c.runs)} run{'s' * (len(c.runs) > 1)}"
    return f"{c.seeds}; {runs}, {hours(c.runs):.2f} hours of one core; {trained}. {'; '.join(c.machines())}.{noise}"


# --- docs/claims.md -----------------------------------------------------------------------------------------------------------------

INTRO = """# Claims

<!-- Written by `andrea claims report`: change the claims or their evidence, not this page. -->

The source document says what makes a model of this kind work. Each such sentence is tried here: one file says what it means as
something that can be measured, and the verdict follows from runs with several seeds.

```bash
andrea claims
andrea claims run gelu-form
```

A number below 0 is what the claim says. For each question, over seeds (paired: the same seed in every arm):

| verdict | when |
|---|---|
| no difference found | the 95 % interval lies within the question's margin around 0 |
| supported here | otherwise, Holm's p over the claim's questions is at most 0.05, and the mean is below 0 |
| reversed here | the same, and the mean is above 0 |
| undecided | otherwise, and always with fewer than three seeds |

A claim stands on the questions it needs: reversed if one of them is, else undecided if one is, else without a difference if one has
none, else supported. *Here* means at the size, on the text and for the time that the card states; small results need not hold for large
models. [A claim of your own](own-claim.md) is one file.
"""


def cell(text: object) -> str:
    return str(text).replace("|", "\\|")


def rows_of(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"


def markdown(all_cards: Sequence[Card]) -> str:
    """docs/claims.md."""
    listed = [(r["id"], r["sentence"], f"`{r['command']}`" if r["command"] else "", r["verdict"]) for r in sentence_rows(all_cards)]
    parts = [INTRO, "## The sentences\n", rows_of(("", "sentence", "shown by", "so far"), listed)]
    for c in all_cards:
        claim = c.claim
        parts += [f"## {claim.name}: {c.verdict}\n", f"> {claim.sentence} ({claim.section})\n", f"**Means.** {claim.means}\n"]
        if c.judgement.answers:
            rows = [
                (a.question + ("" if a.needed else " (beside)"), number(a.mean), interval(a), a.unit, f"{a.margin:g}", a.verdict, to_go(a))
                for a in c.judgement.answers
            ]
            parts.append(rows_of(("question (below 0: as claimed)", "mean", "95 %", "unit", "margin", "verdict", ""), rows))
        parts.append(rows_of(*arm_table(c)))
        parts += [f"{setting(c)} {claim.controls}\n", f"**Published.** {claim.published} Sources: {'; '.join(claim.sources)}.\n"]
        parts.append(f"`andrea claims run {claim.name} --full`; design `{c.design[:12]}`.\n")
    facts = [(f.document, f.who, f.what, f.verdict, f.source) for f in FACTS]
    parts += ["## Who used what\n", rows_of(("the document", "who", "what", "the document is", "source"), facts)]
    return "\n".join(parts)


# --- drawings -----------------------------------------------------------------------------------------------------------------------

WIDTH, ROW = 460, 44  # of a question's drawing, in pixels
STYLE = """.axis { stroke: #888 } .zero { stroke: #888; stroke-dasharray: 3 3 } .band { fill: #8883 }
.ci { stroke: #2563c9; stroke-width: 3 } .mean { fill: #2563c9 } .dot { fill: #c2571a; fill-opacity: .65 }
text { font: 11px system-ui, sans-serif; fill: #777 }"""


def draw(a: Answer, top: int = 0) -> str:
    """One question: a dot for each seed, the interval, the mean, zero, and the margin as a band. The same in words as its title."""
    ends = [0.0, *a.values.values(), *(x for x in (a.low, a.high) if x is not None)]
    low, high = min(ends), max(ends)
    room = (high - low or abs(high) or 1.0) * 0.06
    low, high = low - room, high + room
    at = lambda x: round(10 + (min(max(x, low), high) - low) / (high - low) * (WIDTH - 20), 1)
    y = top + 16
    words = f"{a.question}: mean {number(a.mean)} {a.unit}, 95 % {interval(a)}, {a.verdict}"
    parts = [f"<title>{escape(words)}</title>"]
    if a.margin:
        parts.append(
            f'<rect class="band" x="{at(-a.margin)}" y="{top + 2}" width="{max(1.0, at(a.margin) - at(-a.margin)):.1f}" height="26"/>'
        )
    parts.append(f'<line class="axis" x1="10" x2="{WIDTH - 10}" y1="{top + 30}" y2="{top + 30}"/>')
    parts.append(f'<line class="zero" x1="{at(0)}" x2="{at(0)}" y1="{top + 2}" y2="{top + 30}"/>')
    if a.low is not None and a.high is not None:
        parts.append(f'<line class="ci" x1="{at(a.low)}" x2="{at(a.high)}" y1="{y}" y2="{y}"/>')
    parts += [f'<circle class="dot" cx="{at(x)}" cy="{y - 5 + 10 * (i % 2)}" r="3.5"/>' for i, x in enumerate(a.values.values())]
    parts.append(f'<rect class="mean" x="{at(a.mean) - 2}" y="{y - 7}" width="4" height="14"/>')
    parts.append(
        f'<text x="10" y="{top + 42}">{number(low)}</text><text x="{WIDTH - 10}" y="{top + 42}" text-anchor="end">{number(high)}</text>'
    )
    if 70 < at(0) < WIDTH - 70:  # elsewhere it would stand on the numbers of the ends
        parts.append(f'<text x="{at(0)}" y="{top + 42}" text-anchor="middle">0</text>')
    return f'<g role="img" aria-label="{escape(words)}">{"".join(parts)}</g>'


def drawing(a: Answer) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {ROW + 2}" width="{WIDTH}">{draw(a)}</svg>'


def figure(c: Card) -> str:
    """A file of its own: every question of a claim."""
    rows = []
    for i, a in enumerate(c.judgement.answers):
        rows.append(f'<text x="10" y="{i * (ROW + 22) + 12}">{escape(a.question)} ({escape(a.unit)}): {a.verdict}</text>')
        rows.append(draw(a, i * (ROW + 22) + 16))
    height = max(1, len(rows) // 2) * (ROW + 22) + 6
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"><style>{STYLE}</style>{"".join(rows)}</svg>\n'


def curves(c: Card) -> str:
    """Loss by step, the mean of seeds, a line for each arm; nothing where nothing was trained."""
    lines = [(row["arm"], row["curve"]) for row in c.arms() if len(row["curve"]) > 1]
    if not lines:
        return ""
    xs, ys = [x for _, line in lines for x, _ in line], [y for _, line in lines for _, y in line]
    height, low, high = 180, min(ys), max(ys)
    at = lambda x, y: f"{10 + x / (max(xs) or 1) * (WIDTH - 150):.1f},{10 + (high - y) / (high - low or 1) * (height - 30):.1f}"
    parts = []
    for i, (arm, line) in enumerate(lines):
        colour = f"oklch(62% 0.15 {360 * i // len(lines)})"
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{" ".join(at(x, y) for x, y in line)}"/>')
        parts.append(f'<text x="{WIDTH - 132}" y="{16 + 14 * i}" style="fill:{colour}">{escape(arm)}</text>')
    ends = f'<text x="10" y="{height - 4}">{min(xs):g} to {max(xs):g} steps; loss {high:.3f} to {low:.3f}</text>'
    size = f'viewBox="0 0 {WIDTH} {max(height, 20 + 14 * len(lines))}" width="{WIDTH}"'
    return f'<svg {size} role="img" aria-label="loss by step">{"".join(parts)}{ends}</svg>'


# --- the page -----------------------------------------------------------------------------------------------------------------------


def page(all_cards: Sequence[Card]) -> str:
    """One file with its own style and no script; its policy lets it load nothing."""
    rows = []
    for r in sentence_rows(all_cards):
        links = " ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in r["claims"])
        shown = f"<code>{escape(r['command'])}</code>"
        rows.append(f"<tr><td>{r['id']}<td>{escape(r['sentence'])}<td>{shown}<td>{links} {escape(r['verdict'])}")
    facts = [f"<tr><td>{escape(f.document)}<td>{escape(f.who)}<td>{escape(f.what)}<td>{f.verdict}<td>{escape(f.source)}" for f in FACTS]
    whole = files("andrea.claims").joinpath("report.html").read_text(encoding="utf-8")
    parts = {"DRAWINGS": STYLE, "SENTENCES": "\n".join(rows), "CARDS": "\n".join(map(article, all_cards)), "FACTS": "\n".join(facts)}
    for name, text in parts.items():
        whole = whole.replace(f"<!-- {name} -->", text) if name != "DRAWINGS" else whole.replace("/* DRAWINGS */", text)
    return whole


def article(c: Card) -> str:
    """One claim on the page."""
    claim, e = c.claim, escape
    kind = c.verdict.split(" ")[0]
    questions = []
    for a in c.judgement.answers:
        beside = "" if a.needed else " <em>(beside)</em>"
        numbers = f"{number(a.mean)}<br>{interval(a)}<br>{e(a.unit)}"
        decided = f"<b>{a.verdict}</b><br>{to_go(a)}"
        questions.append(f"<tr><td>{e(a.question)}{beside}<td>{drawing(a)}<td>{numbers}<td>&plusmn;{a.margin:g}<td>{decided}")
    columns, rows = arm_table(c)
    arms = "".join(f"<th>{e(name)}" for name in columns) + "".join("<tr>" + "".join(f"<td>{e(text)}" for text in row) for row in rows)
    answered = (
        f"<table><tr><th>question<th>seeds, mean, interval<th>mean, 95 %<th>margin<th>verdict{''.join(questions)}</table>"
        if questions
        else ""
    )
    return f"""<article class="card" id="{e(claim.name)}">
<h2>{e(claim.name)} <span class="verdict {kind}">{e(c.verdict)}</span></h2>
<blockquote>{e(claim.sentence)} <span class="soft">({e(claim.section)})</span></blockquote>
<p><b>Means.</b> {e(claim.means)}</p>
{answered}
{curves(c)}
<table><tr>{arms}</table>
<p class="soft">{e(setting(c))} {e(claim.controls)}</p>
<p><b>Published.</b> {e(claim.published)} <span class="soft">{e("; ".join(claim.sources))}</span></p>
<p class="soft"><code>andrea claims run {e(claim.name)} --full</code> design <code>{c.design[:12]}</code></p>
</article>"""


# --- for other programs -------------------------------------------------------------------------------------------------------------


def table(all_cards: Sequence[Card]) -> str:
    """CSV: a line for every single figure of every run."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("claim", "arm", "seed", "rate", "tuning", "seconds", "figure", "value"))
    for c in all_cards:
        for run in c.runs:
            first = (c.claim.name, run.arm, run.seed, f"{run.rate:g}", int(run.seed in c.claim.tuning_seeds), run.seconds)
            writer.writerows((*first, name, value) for name, value in leaves(run.figures).items())
    return out.getvalue()


LATEX = str.maketrans({c: f"\\{c}" for c in "#$%&_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})


def latex(all_cards: Sequence[Card]) -> str:
    """A tabular of all questions; it needs no package."""
    lines = [r"\begin{tabular}{llrrl}", r"claim & question & mean & 95\,\% & verdict \\ \hline"]
    for c in all_cards:
        for a in c.judgement.answers:
            cells = (c.claim.name, a.question, number(a.mean), interval(a), a.verdict)
            lines.append(" & ".join(str(text).translate(LATEX) for text in cells) + r" \\")
    return "\n".join([*lines, r"\end{tabular}", ""])


def data(all_cards: Sequence[Card]) -> dict[str, Any]:
    """What --json prints."""
    return {"sentences": sentence_rows(all_cards), "claims": [c.to_dict() for c in all_cards], "history": [f._asdict() for f in FACTS]}


def written(all_cards: Sequence[Card], out: Path, kinds: Sequence[str] = ()) -> list[Path]:
    """Write claims.md and claims.html into a folder, and of `csv`, `latex` and `svg` what is wanted; the files."""
    texts = {"claims.md": markdown(all_cards), "claims.html": page(all_cards)}
    texts |= {"claims.csv": table(all_cards)} if "csv" in kinds else {}
    texts |= {"claims.tex": latex(all_cards)} if "latex" in kinds else {}
    texts |= {f"claims-{c.claim.name}.svg": figure(c) for c in all_cards if c.judgement.answers} if "svg" in kinds else {}
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        replace_text(out / name, text)
    return [out / name for name in texts]
