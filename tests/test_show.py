"""What a person reads."""

import io
import json
import sys

import pytest

from andrea.show import Table, draw_losses, number, percent, print_json, printable, size, table, terminal


def test_control_characters_are_spelled_out_for_a_terminal() -> None:
    assert printable("a\x1b[2J\tå\n🎉\x07\r") == "a\\x1b[2J\tå\n🎉\\x07\\r"
    plain = "10\u00a0000 €\r\n👨\u200d👩\u3000e\u0301"
    assert printable(plain) == plain


def test_numbers_sizes_and_shares_read_well() -> None:
    assert [number(4_718_592), number(1.23456), number(123_456.0)] == ["4,718,592", "1.235", "1.235e+05"]
    assert [size(0), size(1023), size(1024), size(2_359_296), size(1023 * 1024), size(2**40)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "2.25 MiB",
        "1023 KiB",
        "1.00 TiB",
    ]
    assert percent(0.61326) == "61.3 %"


def test_numbers_are_never_cut_however_many_columns() -> None:
    file = io.StringIO()
    terminal([Table("t", ("name", *(f">column {n}" for n in range(20))), [("blocks.0.mid", *[123_456_789] * 20)])], file)
    printed = file.getvalue()
    assert printed.count("123,456,789") == 20 and "blocks.0.mid" in printed and "column 19" in printed


def test_long_cells_are_folded_and_never_cut(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    file = io.StringIO()
    terminal([Table("t", ("address", ">count"), [("a" * 170, 92_331_264), ("[bold]x", 1)], note="a note")], file)
    printed = file.getvalue()
    assert printed.count("a" * 10) >= 16 and printed.replace("\n", "").count("a") >= 170
    assert "92,331,264" in printed and "[bold]x" in printed and "a note" in printed
    assert max(map(len, printed.splitlines())) <= 120  # what no terminal reads is as wide as most terminals, whatever COLUMNS says


def test_records_become_a_table_with_what_they_lack_left_empty(capsys) -> None:
    table([{"run": "a", "loss_nats": 1.5}, {"run": "b", "loss_nats": None}], ("run", "loss_nats"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["run", "loss", "nats"] and lines[-2:] == [["a", "1.5"], ["b"]]
    table([], ("run",))
    assert "run" in capsys.readouterr().out


def test_json_is_read_back(capsys) -> None:
    print_json({"a": [1, 2.5, "é"], "b": None})
    assert json.loads(capsys.readouterr().out) == {"a": [1, 2.5, "é"], "b": None}


def test_losses_are_drawn_into_a_picture(tmp_path, monkeypatch) -> None:
    evaluations = [{"step": 0, "loss": 9.0, "whole": False}, {"step": 10, "loss": 4.0, "whole": True}]
    course = {"run": "runs/a-1", "training": [{"step": 1, "loss": 9.1}], "evaluations": evaluations}
    draw_losses(course, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    for name, told in (("loss.txt", "does not end as a picture"), ("gone/loss.png", "there is no folder .*gone; make it first")):
        with pytest.raises(ValueError, match=told):
            draw_losses(course, tmp_path / name)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match="needs matplotlib"):
        draw_losses(course, tmp_path / "again.png")
