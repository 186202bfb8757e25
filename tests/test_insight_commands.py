"""trace, lens, heads and flow as a person meets them, and the page that a browser opens."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import small
from reference import random_ids, randomise, tiny
from safetensors.torch import load_file
from test_cli import andrea

from andrea import load
from andrea.cli import app
from andrea.cli.lens import report as lens_report
from andrea.cli.mistakes import answered
from andrea.insight.flow import SCORES
from andrea.insight.page import frame, page
from andrea.insight.paper import paper
from andrea.insight.story import tell
from andrea.insight.trace import stations, sublayers, trace
from andrea.model import Transformer
from andrea.training.start import train

TEXT = "def main():\n    parser = Parser()"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DOM = Path(__file__).with_name("page_dom.js")  # a document of a few lines: enough for the page's script to draw into


@pytest.fixture(scope="module")
def told():
    model = randomise(Transformer(tiny(context=24, n_layer=3))).eval()
    return {"run": "</script><b>", "step": 7, **tell(trace(model, random_ids(model.config, 1, 20)), 11)}


@pytest.fixture(scope="module")
def traced(finished_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced")
    done = andrea(
        "trace", finished_run, TEXT, "--token", 3, "--json", "--html", folder / "one.html", "--png", folder / "one.png", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_trace_as_json_balances_and_follows_the_token_that_was_asked_for(traced, finished_run):
    folder, found = traced
    assert found["balance_error"] <= 1e-5 and found["books"]["stream_error"] <= 1e-5
    assert found["position"] == 3 and found["tokens"][0]["text"] == "<|endoftext|>"
    assert "".join(token["text"] for token in found["tokens"][1:]) == TEXT
    assert found["next"]["text"] == found["tokens"][4]["text"]
    assert [s["address"] for s in found["sublayers"]] == sublayers(2)
    assert "weights" not in found["sublayers"][0]["attention"]["heads"][0]
    run = load(finished_run)
    logits = run.model(torch.tensor([[token["id"] for token in found["tokens"]]]))[0, 3]
    assert found["books"]["logit"][0] == pytest.approx(logits.max().item(), rel=1e-5)
    assert found["answer"]["probability"] == pytest.approx(logits.softmax(0).max().item(), rel=1e-5)
    assert (folder / "one.png").read_bytes().startswith(b"\x89PNG")


def test_the_trace_for_a_person_has_every_part(finished_run):
    done = andrea("trace", finished_run, TEXT, "--heads")
    assert done.returncode == 0, done.stderr
    for part in (
        "blocks.1.mlp",
        "/ stream",
        "angle",
        "logit lens",
        "rank",
        "Every head",
        "let through",
        "* gamma",
        "sum of the parts",
        "Balance error",
    ):
        assert part in done.stdout, part


def test_the_paper_trace_prints_the_numbers_that_it_computes():
    done = andrea("trace", "--paper")
    assert done.returncode == 0, done.stderr
    for step in paper()["steps"]:
        if step["step"] in ("write", "pattern", "normalised"):
            flat = step["values"][0] if isinstance(step["values"][0][0], float) else step["values"][0][0]
            assert " ".join(f"{x:8.4f}" for x in flat[:4]).strip() in done.stdout, step
    assert json.loads(andrea("trace", "--paper", "--json").stdout)["balance_error"] <= 1e-12


def test_the_lens_command_says_where_the_right_token_first_leads(finished_run):
    found = json.loads(andrea("lens", finished_run, TEXT, "--tuned", "--steps", 3, "--json").stdout)
    assert [s["station"] for s in found["stations"]] == stations(2)
    last = found["stations"][-1]
    assert last["kl"] == pytest.approx(0, abs=1e-6) and last["held_out_kl"]["logit"] == pytest.approx(0, abs=1e-6)
    assert found["stations"][0]["held_out_kl"]["tuned"] > 0
    for t, token in enumerate(found["tokens"][:-1]):
        leads = [s["station"] for s in found["stations"] if s["positions"][t]["top"][0]["id"] == found["tokens"][t + 1]["id"]]
        assert token["right_first_at"] == (leads[0] if leads else None)
    table = andrea("lens", finished_run, TEXT, "--positions", 2).stdout
    assert "blocks.0.mid" in table and "next in the text" in table and "KL(final || lens)" in table


def test_the_tuned_lens_is_learned_and_measured_on_other_windows_than_the_text(finished_run, monkeypatch):
    from andrea.insight import lens

    run, seen = load(finished_run), []
    original = lens.tune
    monkeypatch.setattr(lens, "tune", lambda model, rows, steps: seen.append(rows) or original(model, rows, steps))
    measured = []
    both = lens.both_lenses
    monkeypatch.setattr(lens, "both_lenses", lambda model, tuned, rows: measured.append(rows) or both(model, tuned, rows))
    lens_report(run, [1, 2, 3], 1)
    split = run.open_data().val
    val = split.read(0, len(split)).tolist()
    whole = " ".join(map(str, val))
    for row in [*seen[0].tolist(), *measured[0].tolist()]:
        assert " ".join(map(str, row)) in whole
    assert not {tuple(row) for row in seen[0].tolist()} & {tuple(row) for row in measured[0].tolist()}


def test_the_heads_command_names_kinds_beside_the_uniform_value(finished_run):
    found = json.loads(andrea("heads", finished_run, "-n", 10, "--rows", 3, "--json").stdout)
    assert len(found["heads"]) == 4 and set(found["uniform"]) == set(SCORES)
    assert all(head["kind"] in (*SCORES, "mixed") for head in found["heads"])
    assert found["repeats_help"] == pytest.approx(found["loss_second"] - found["loss_first"])
    assert "uniform" in andrea("heads", finished_run, "-n", 10).stdout


def test_the_flow_command_measures_on_held_out_text(finished_run, tmp_path):
    done = andrea("flow", finished_run, "--tokens", 256, "--steps", 2, "--json", "--png", tmp_path / "flow.png")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [s["station"] for s in found["stations"]] == stations(2)
    assert set(found["effective_depth"]) == {"used", "settled", "centre"}
    assert all(s["gradient"] > 0 for s in found["stations"])
    assert found["stations"][0]["write"] is None and found["stations"][1]["write"]["relative"] > 0
    assert found["stations"][1]["first_position"] != found["stations"][1]["write"]
    first, last = found["stations"][2]["gradient"], found["stations"][4]["gradient"]
    assert found["gradient_ratio"] == pytest.approx(first / last)
    assert found["updates_between"] is None and found["blocks"][1]["relative_update"] is None, "there is one save"
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")
    text = andrea("flow", finished_run, "--tokens", 128, "--steps", 1).stdout
    assert "How deep it is, three ways" in text and "loss without it" in text


def test_a_model_without_residuals_says_what_is_not_defined(tmp_path, text_file):
    for _ in train(small(text_file, changes=("residual=false", "steps=2", "save_every=1", "n_layer=1")), tmp_path / "run"):
        pass
    found = json.loads(andrea("flow", "run", "--tokens", 64, "--steps", 1, "--png", "flow.png", "--json", cwd=tmp_path).stdout)
    assert found["effective_depth"]["used"] is None and found["blocks"][0]["cost"] is None
    before, after = (load_file(tmp_path / "run" / "checkpoints" / f"step-{step}" / "model.safetensors") for step in (1, 2))
    squares = lambda change: sum(change(name).square().sum().item() for name in before if name.startswith("blocks.0."))
    share = (squares(lambda name: after[name] - before[name]) / squares(before.get)) ** 0.5
    assert found["updates_between"] == [1, 2] and found["blocks"][0]["relative_update"] == pytest.approx(share, rel=1e-4)
    for command in (("flow", "run", "--tokens", 64, "--steps", 1), ("trace", "run", TEXT)):
        done = andrea(*command, cwd=tmp_path)
        assert done.returncode == 0 and "not defined" in done.stdout, done.stderr
    assert andrea("trace", "run", TEXT, "--png", "x.png", "--html", "x.html", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trace",), "give a run and a text"),
        (("trace", "RUN", "a", "--token", "9"), "--token 9 is not among the"),
        (("trace", "RUN", "--paper"), "--paper has a model and a text of its own"),
        (("trace", "RUN", "word " * 200), "do not fit the context of 32"),
        (("trace", "RUN", "a", "--png", "x.nothing"), "does not end as a picture"),
        (("lens", "RUN", "a", "--steps", "0"), "must be at least 1"),
        (("heads", "RUN", "-n", "99"), "n=99 is not 2 to 15"),
        (("heads", "RUN", "--rows", "0"), "--rows 0 must be at least 1"),
        (("flow", "RUN", "--tokens", "0"), "must be at least 1"),
        (("heads", "nowhere"), "is not a run folder"),
    ],
    ids=str,
)
def test_a_mistake_gets_one_message(finished_run, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    args = [str(finished_run) if a == "RUN" else a for a in arguments]
    assert answered(lambda: app(args, prog_name="andrea", standalone_mode=False), "andrea --help", debug=False) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1, said


# The page


def test_the_page_names_no_address_and_may_load_nothing(told):
    text = page(told)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|<link|<img|src=", text)
    assert "default-src 'none'" in text and "connect-src" not in text
    assert text.count("</script>") == 2, "a text could end the script"
    assert len(text) - len(json.dumps(told)) < 40_000
    inside = re.search(r'<script id="story"[^>]*>(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(inside)["run"] == "</script><b>"


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    model = randomise(Transformer(tiny())).eval()
    shown = trace(model, random_ids(model.config, 1, 5))._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"') and shown.count("<") == 2 and "balance_error" in shown
    assert frame({"run": '"><b>'}).count("<b>") == 0


def close(number: str, value: float, digits: int) -> bool:
    return float(number.replace("\u2212", "-").replace("+", "")) == pytest.approx(value, abs=0.51 * 10**-digits)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: nothing to run the page's script with")
def test_the_pages_script_draws_the_numbers_of_the_trace(told, tmp_path):
    (tmp_path / "page.html").write_text(page(told), encoding="utf-8")
    done = subprocess.run(["node", DOM, tmp_path / "page.html"], capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)
    assert len(drawn["rows"]) == 6 and len(drawn["chosen"]) == 6, "a row for each sublayer, and its detail when clicked"
    for row, part in zip(drawn["numbers"][1:], told["sublayers"], strict=True):
        assert row[0] == part["address"]
        values = (part["read"]["mean"], part["read"]["std"], part["added"]["norm"], part["added"]["relative"])
        assert all(close(cell, value, 3) for cell, value in zip(row[1:5], values, strict=True)), row
        assert int(row[10]) == part["after"]["target_rank"] and close(row[-1], part["push"]["answer"], 3)
    assert close(drawn["sum"], told["books"]["sum"][0], 5) and close(drawn["logit"], told["books"]["logit"][0], 5)
    assert drawn["weights"] == pytest.approx(told["sublayers"][0]["attention"]["heads"][1]["weights"] + [0] * 8, rel=1e-5)
    assert "<b>" in drawn["about"], "text stays text"


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no Chromium is installed")
def test_a_browser_without_a_network_draws_the_page(told, tmp_path):
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    (tmp_path / "page.html").write_text(page(told), encoding="utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--proxy-server=127.0.0.1:9",
        "--dump-dom",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run(
        [*command, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, encoding="utf-8", timeout=120, check=False
    )
    assert done.stdout.count('class="row') == 6
    found = re.search(r'id="sum">([^<]+)<', done.stdout)
    assert found and close(found[1], told["books"]["sum"][0], 5)
