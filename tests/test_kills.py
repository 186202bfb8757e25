"""A short form of benchmarks/kills.py: runs are killed at random instants and damaged, and come to the same end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "kills.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("options", [(), ("--set", "optim.name=adamw", "--seed", "1")])
def test_no_run_is_lost_and_none_ends_otherwise(options):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--kills", "15", "--in-save", "4", "--json", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout)
    assert counts["problems"] == []
    assert (counts["lost"], counts["different"]) == (0, 0)
    assert counts["kills"] >= 15
    assert counts["in_save"] >= 4
