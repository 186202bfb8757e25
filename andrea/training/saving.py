"""Saving beside the training: a step waits for a copy in memory, not for the disk."""

from collections.abc import Callable, Iterator
from threading import Thread

from andrea.training.report import Saved


class Saver:
    """One save at a time, in a thread. What it raises is raised by the next call."""

    def __init__(self) -> None:
        self.thread: Thread | None = None
        self.done: list[Saved | BaseException] = []

    def start(self, save: Callable[[], Saved]) -> None:
        """Begin; `save` owns all that it reads, and no other is on the way."""

        def work() -> None:
            try:
                self.done.append(save())
            except BaseException as error:  # for the thread that trains, whatever it is
                self.done.append(error)

        self.thread = Thread(target=work, name="andrea-saving")
        self.thread.start()

    def finished(self, wait: bool = False) -> Iterator[Saved]:
        """The event of the save that has ended since the last call, if one has; `wait` for it if one is on the way."""
        if self.thread and (wait or not self.thread.is_alive()):
            self.thread.join()
            self.thread = None
        if self.thread is None and self.done:
            ended = self.done.pop()
            if isinstance(ended, BaseException):
                raise ended
            yield ended
