"""`andrea claims`: the sentences that claim something, each tried by runs."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.show import Table, print_json, terminal

if TYPE_CHECKING:
    from andrea.claims.verdict import Judgement

Option, Argument = typer.Option, typer.Argument
SECONDS_BETWEEN_LINES = 10.0

JsonOption = Annotated[bool, Option("--json", help="Print JSON.")]
JsonLinesOption = Annotated[bool, Option("--json", help="Print every event as one JSON line.")]
MinutesOption = Annotated[float | None, Option(help="Begin no run that would end later; what is left is told.", show_default=False)]
JobsOption = Annotated[int | None, Option(help="Processes, each with one thread. Default: one for each core.", show_default=False)]
EvidenceOption = Annotated[Path | None, Option(help="A folder of runs, which count where it has some.", show_default=False)]


def claims(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List every sentence of the specification that claims something, what shows whether it is so, and what came out so far.

    Examples:

      andrea claims

      andrea claims run gelu-form

      andrea claims run ./mine.py --quick --minutes 5

      andrea claims report --out book
    """
    if ctx.invoked_subcommand:
        return
    from andrea.claims.report import cards, data, sentence_rows

    found = cards()
    if as_json:
        print_json(data(found)["sentences"])
        return
    rows = [(r["id"], r["sentence"], r["command"], r["verdict"]) for r in sentence_rows(found)]
    terminal([Table("The specification's claims", ("", "sentence", "shown by", "so far"), rows)])


def run(
    targets: Annotated[list[str], Argument(metavar="NAME|FILE.py...", help="Claims of ours, or files of yours.", show_default=False)],
    quick: Annotated[bool, Option("--quick/--full", help="The first seeds alone, a trend; or all seeds, for a verdict.")] = True,
    minutes: MinutesOption = None,
    jobs: JobsOption = None,
    out: Annotated[Path, Option(metavar="FOLDER", help="Where each finished run is kept, in a folder for each claim.")] = Path("evidence"),
    anew: Annotated[bool, Option("--anew", help="Set runs of an older design aside.")] = False,
    record: Annotated[bool, Option("--record", help="Keep the runs of our claims in the package, as what it reports.")] = False,
    as_json: JsonLinesOption = False,
) -> None:
    """Run claims: their arms, seed by seed, in processes; stopped and called again, it goes on where it was.

    Nothing is judged before its design is written down: a hash of the sentence, what it means, arms, seeds, rates, questions and code.
    A quick run shows its trend beside what the package recorded, and how many seeds a verdict would take.

    Examples:

      andrea claims run gelu-form

      andrea claims run gelu-relu --full --minutes 30

      andrea claims run ./mine.py --jobs 2 --json
    """
    from andrea.claims.claim import open_claim
    from andrea.claims.evidence import read_runs
    from andrea.claims.evidence import record as keep
    from andrea.claims.report import card
    from andrea.claims.run import Judged
    from andrea.claims.run import run as run_claim

    lines = Lines(as_json)
    for target in targets:
        opened = open_claim(target)
        for event in run_claim(opened, out, quick, minutes, jobs, anew):
            if as_json or not isinstance(event, Judged):
                lines.show(event)
            else:
                terminal(judged(event.judgement, card(opened).judgement))
                print(outlook(event.judgement, event.left, opened.target, quick))
        if record:
            if opened.target.endswith(".py"):
                raise ValueError(f"--record keeps runs in the package, for its own claims; those of {target} are in {out}")
            print(f"wrote {keep(opened, read_runs(out / opened.claim.name, opened))}")


class Lines:
    """What a run says: a line for each thing that becomes known, one now and then for the runs; or every event as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.last = as_json, -SECONDS_BETWEEN_LINES

    def show(self, event: Any) -> None:
        from andrea.claims.run import Began, Noise, RatesChosen, RunDone, to_dict
        from andrea.cli.progress import clock

        if self.as_json:
            print(json.dumps(to_dict(event)), flush=True)
        elif isinstance(event, Began):
            ahead = f"{event.done} runs done, {event.to_do} to do, {event.jobs} at a time"
            print(f"{event.claim}: {ahead}, kept in {event.folder}; design {event.design[:12]}", flush=True)
        elif isinstance(event, RatesChosen):
            print("rates chosen: " + ", ".join(f"{arm} {rate:g}" for arm, rate in event.rates.items()), flush=True)
        elif isinstance(event, Noise):
            print(f"noise: {event.figure} of {event.arm} varies by {event.sd:.4f} (standard deviation of {event.seeds} seeds)", flush=True)
        elif isinstance(event, RunDone) and (monotonic() - self.last >= SECONDS_BETWEEN_LINES or not event.to_do):
            self.last = monotonic()
            what = f"{event.arm}, seed {event.seed}, rate {event.rate:g}"
            total, left = event.done + event.to_do, clock(event.seconds_left)
            print(
                f"run {event.done}/{total}  {left} left  {event.runs_per_hour:,.0f} runs/hour  last: {what}, {event.seconds:.1f} s",
                flush=True,
            )


def judged(j: "Judgement", before: "Judgement") -> list[Table]:
    """The questions, answered; beside them what the package recorded."""
    from andrea.claims.report import interval, number, to_go

    kept = {a.question: a for a in before.answers}
    rows = []
    for a in j.answers:
        old = kept.get(a.question)
        beside = f"{number(old.mean)}, {old.verdict}, {len(old.values)} seeds" if old else ""
        rows.append(
            (a.question if a.needed else f"{a.question} (beside)", number(a.mean), interval(a), a.unit, a.verdict, to_go(a), beside)
        )
    columns = ("question: below 0 as claimed", ">mean", ">95 %", "unit", "verdict", "to decide", "recorded")
    shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    title = (
        f"{j.claim}: {j.verdict}" if len(j.seeds) == j.planned else f"{j.claim}, {len(j.seeds)} of {j.planned} seeds so far: {j.verdict}"
    )
    return [Table(title, [columns[i] for i in shown], [[row[i] for i in shown] for row in rows])]


def outlook(j: "Judgement", left: int, target: str, quick: bool) -> str:
    """What this is worth, and how to go on."""
    lines = []
    diverged = {arm: counts for arm, counts in j.diverged.items() if counts[0]}
    if diverged:
        lines.append("diverged: " + ", ".join(f"{arm} {bad} of {n}" for arm, (bad, n) in diverged.items()))
    if j.diverged and all(bad == n for bad, n in j.diverged.values()):
        lines.append("every run of every arm diverged, so nothing was compared: try more steps, or another learning rate")
    if left:
        lines.append(f"{left} runs are left; the same command goes on")
    if len(j.seeds) < j.planned:
        more = f"; the undecided ones would take about {j.seeds_to_go} more" if j.seeds_to_go else ""
        lines.append(
            f"a trend of {len(j.seeds)} of {j.planned} seeds, no verdict{more}: andrea claims run {target} --full"
            if quick
            else f"{len(j.seeds)} of {j.planned} seeds{more}"
        )
    elif j.seeds_to_go:
        lines.append(f"undecided with {len(j.seeds)} seeds; about {j.seeds_to_go} more would decide, if mean and spread stay")
    return "\n".join(lines) or "every seed of the design is in this verdict; docs/claims.md says what its words mean"


def report(
    files: Annotated[
        list[str] | None, Argument(metavar="[FILE.py]...", help="Claims of yours, to report with ours.", show_default=False)
    ] = None,
    *,
    out: Annotated[Path, Option(metavar="FOLDER", help="Where claims.md and claims.html go.")] = Path("docs"),
    evidence: EvidenceOption = None,
    csv: Annotated[bool, Option("--csv", help="Also claims.csv: every figure of every run.")] = False,
    latex: Annotated[bool, Option("--latex", help="Also claims.tex: a table of all questions.")] = False,
    svg: Annotated[bool, Option("--svg", help="Also a vector figure for each claim.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the book of all claims: a page for docs/, and one for a browser that loads nothing.

    It is made from the runs that came with the package, or from yours; nothing in it but each claim's own words was written by hand.

    Examples:

      andrea claims report

      andrea claims report ./mine.py --evidence evidence --out book --csv --latex --svg
    """
    from andrea.claims.report import cards, data, written

    found = cards(evidence, files or ())
    paths = written(found, out, [kind for kind, wanted in (("csv", csv), ("latex", latex), ("svg", svg)) if wanted])
    if as_json:
        print_json({**data(found), "written": [str(path) for path in paths]})
        return
    for path in paths:
        print(f"wrote {path}")


def verify(
    folder: Annotated[Path, Argument(help="evidence/NAME, or evidence with several in it.", show_default=False)],
    runs: Annotated[int, Option(help="How many of each claim's runs are done again, chosen by chance.")] = 3,
    minutes: MinutesOption = None,
    seed: Annotated[int | None, Option(help="Choose the same runs again.", show_default=False)] = None,
    jobs: JobsOption = None,
    file: Annotated[str | None, Option(help="The claim's file, where it is none of ours.", show_default=False)] = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Do a few runs of somebody's evidence again, and say whether it holds; exit 1 where it does not.

    On the same machine and versions every figure must be equal; elsewhere it must be within what seeds make of it.

    Examples:

      andrea claims verify evidence/gelu-relu

      andrea claims verify evidence --runs 1 --minutes 10
    """
    from andrea.claims.claim import names, open_claim
    from andrea.claims.verify import Checked, claim_of
    from andrea.claims.verify import verify as verify_claim

    if runs < 1:
        raise ValueError(f"--runs {runs} must be at least 1")
    folders = [folder] if (folder / "design.json").exists() else sorted(p.parent for p in folder.glob("*/design.json")) or [folder]
    holds = True
    for each in folders:
        if not file and (name := claim_of(each)) not in names():
            raise ValueError(f"{each} holds runs of {name}, which is none of our claims; name its file: --file mine.py")
        for event in verify_claim(each, open_claim(file or claim_of(each)), runs, minutes, seed, jobs):
            holds &= event.holds
            word = "holds" if event.holds else "does not hold"
            if as_json:
                print(json.dumps({"event": type(event).__name__, **asdict(event)}), flush=True)
            elif isinstance(event, Checked):
                print(f"{event.arm}, seed {event.seed}, rate {event.rate:g}: {word}, {event.how}", flush=True)
            else:
                print(f"{event.claim}: {word}; {event.words}")
    if not holds:
        raise typer.Exit(1)


def history(as_json: JsonOption = False) -> None:
    """Who used what, with sources, beside what the document says of it.

    Examples:

      andrea claims history

      andrea claims history --json
    """
    from andrea.claims.history import FACTS

    if as_json:
        print_json([fact._asdict() for fact in FACTS])
        return
    documents: Iterable[str] = dict.fromkeys(fact.document for fact in FACTS)
    columns = ("who", "what", "the document is", "source")
    terminal(
        [Table(f"The document: {d}", columns, [(f.who, f.what, f.verdict, f.source) for f in FACTS if f.document == d]) for d in documents]
    )


COMMANDS: dict[str, Callable[..., None]] = {"run": run, "report": report, "verify": verify, "history": history}
