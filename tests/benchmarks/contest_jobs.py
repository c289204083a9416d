"""Jobs that a worker runs in the tests: quick, without a library."""

import os
import pathlib
import sys


def nothing():
    """Each step does nothing."""
    return lambda: None


def write_name(path, text):
    """Each step adds a line to a file."""

    def step():
        with pathlib.Path(path).open("a") as stream:
            stream.write(f"{text}\n")

    return step


def write_pid(path):
    """Tells what process it is."""
    pathlib.Path(path).write_text(str(os.getpid()))
    return nothing()


def chatter():
    """Prints on everything that a library prints on, and reads stdin."""
    print("setting up", os.environ["KERAS_BACKEND"])

    def step():
        print('{"ready": "not by the protocol"}')
        os.write(1, b"from C\n")
        os.system("echo from a child; cat")
        print("on stderr", file=sys.stderr)
        assert sys.stdin.read() == ""

    return step


def set_up_fails():
    """Fails before it is ready."""
    raise RuntimeError("no such model\nwith a second line")


def second_step_fails():
    """Fails once the contest is on."""
    calls = []

    def step():
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("the second step")

    return step


def killed():
    """Dies without a word, as for want of memory."""
    os.kill(os.getpid(), 9)


def leaves():
    """Ends the process."""
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)
