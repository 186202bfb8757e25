"""`andrea` in a process that begins warm: forked from one that has imported torch already, which is most of a short command's work.

    python -S warm.py ADDRESS ARGS...    stands for `andrea ARGS...`: the same program from `main` on, in a process of its own, with the
                                         caller's folder, environment and streams; ends with its exit code
    python -P warm.py ADDRESS --serve    what it is forked from; ends when its standard input does

A command whose environment differs from the first's begins cold, as libraries may read it when they are imported; where the system is not
Linux, all do. How a cold one begins, ends at a signal or shares a terminal is for tests that start `python -m andrea` themselves.
"""

import os
import socket
import sys
from functools import cache

# not read by an import; torch sets the last
ANY = {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}
ENVIRONMENT = dict(os.environ)  # before a test changes it


def program(*args: object) -> list[str]:
    """What to run for `andrea ARGS...`."""
    address = server()
    how = ["-S", __file__, address] if address else ["-m", "andrea"]
    return [sys.executable, *how, *map(str, args)]


@cache
def server() -> str | None:
    """The address of one that ends when this process does; None where there is none."""
    import subprocess
    import tempfile

    if sys.platform != "linux":
        return None
    address = f"{tempfile.mkdtemp()}/andrea"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # a pipe has no place to remember
    process = subprocess.Popen([sys.executable, "-P", __file__, address, "--serve"], env=ENVIRONMENT, **pipes)
    assert (said := process.stdout.readline()) == b"ready\n", said + process.stdout.read()
    return address


def ask(address: str, args: list[str]) -> None:
    """End as the program ends with these arguments."""
    folder = os.getcwd()  # noqa: PTH109, importing pathlib takes longer than all of this
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        told = [folder, str(len(args)), *args, *(f"{name}={value}" for name, value in os.environ.items())]
        socket.send_fds(server, ["\0".join(told).encode("utf-8", "surrogateescape")], [0, 1, 2])
        answer = server.recv(8)
    if answer == b"cold":
        os.execv(sys.executable, [sys.executable, "-m", "andrea", *args])
    os._exit(int(answer or 70))  # no answer: the server has died


def serve(address: str) -> None:
    """Answer who asks. Returns in a process forked for one of them, where `main` is what follows."""
    import gc
    import shutil
    from contextlib import suppress
    from select import select

    environment = dict(os.environ)  # `main` adds to it what it then finds, here and where a test calls it
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    warm_up()
    gc.freeze()  # what is imported stays: no one looks through it again, as it begins or ends
    print("ready", flush=True)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of its end
    while sys.stdin.fileno() not in (ready := select([0, listener, *running], [], [])[0]):
        for descriptor in ready:
            if descriptor is not listener:
                pid, asking = running.pop(descriptor)
                os.close(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with asking, suppress(OSError):  # who asked may have been killed
                    asking.send(str(code if code >= 0 else 128 - code).encode())
                continue
            asking = listener.accept()[0]
            told, streams, _, _ = socket.recv_fds(asking, 1 << 20, 3)
            folder, n, *rest = told.decode("utf-8", "surrogateescape").split("\0")
            args, theirs = rest[: int(n)], dict(line.split("=", 1) for line in rest[int(n) :])
            if any(theirs.get(name) not in (environment.get(name), os.environ.get(name)) for name in {*theirs, *environment} - ANY):
                asking.send(b"cold")
                asking.close()
            elif pid := os.fork():
                running[os.pidfd_open(pid)] = pid, asking
            else:
                os.environ.update({name: theirs[name] for name in ANY & theirs.keys()})
                os.chdir(folder)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                for left in (listener.detach(), asking.detach(), *running, *streams):
                    os.close(left)
                sys.argv[:] = ["andrea", *args]
                return
            for stream in streams:
                os.close(stream)
    shutil.rmtree(os.path.dirname(address), ignore_errors=True)  # noqa: PTH120
    os._exit(0)


def warm_up() -> None:
    """All that commands import, as `main` would."""
    from contextlib import redirect_stdout, suppress
    from importlib import import_module
    from io import StringIO

    from andrea.cli import main

    sys.argv[1:] = ["--version"]
    with suppress(SystemExit), redirect_stdout(StringIO()):
        main()  # sets what torch reads
    for name in ("andrea.claims.twin", "andrea.infer.cpu", "andrea.training.forecast", "andrea.training.history", "matplotlib.figure"):
        import_module(name)


if __name__ == "__main__":
    if sys.argv[2:] == ["--serve"]:
        serve(sys.argv[1])
        from andrea.cli import main

        main()
    else:
        ask(sys.argv[1], sys.argv[2:])
