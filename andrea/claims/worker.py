"""A process that measures: a task a line on standard input, its figures a line on standard output. It ends with whoever started it."""

import json
import os
import queue
import signal
import threading
import traceback
from time import perf_counter
from typing import Any

from andrea.claims.claim import open_claim

CODE = "from andrea.claims.worker import main; main()"  # what Python is started with


def main() -> None:
    """Work until standard input ends, which it does when the parent ends, however it ends: then stop at once, in the middle of a run
    too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)  # what a claim prints is no answer
    asked = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what a claim reads is no task
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in asked:
            tasks.put(line.decode("utf-8"))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        print(json.dumps(answer(json.loads(tasks.get()))), file=answers, flush=True)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Figures and seconds, or the error that a claim's own code raised."""
    try:
        claim = open_claim(asked["target"]).claim
        task = claim.task(asked["arm"], asked["seed"], asked["rate"])
        began = perf_counter()
        figures = dict(claim.measure(task, claim.arms[task.arm]))
        seconds = perf_counter() - began
        json.dumps(figures, allow_nan=False)
        if type(tunes := figures.get(claim.tune_by, 0.0)) not in (int, float):
            raise ValueError(
                f"the figure {claim.tune_by!r} is {tunes!r}; wanted a number, since rates are chosen by it and it tells the noise"
            )
    except BaseException as error:  # whatever a stranger's code raises is an answer, sys.exit() too
        return {"error": "".join(traceback.format_exception_only(error)).strip(), "traceback": traceback.format_exc()}
    return {"figures": figures, "seconds": seconds}
