"""Runs a command several times in one new process, which imports TensorFlow once."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def run(module, lines, cwd=ROOT, **environment):
    """Returns exit status, standard output and errors of each line of arguments."""
    words = [[str(word) for word in line] for line in lines]
    done = subprocess.run(
        [sys.executable, __file__, module, json.dumps(words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ
        | {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT)}
        | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def end_of(main, words):
    """Runs a command as `python -m` does, but that its module is imported already."""
    from absl import flags

    from train.common import command_line

    flags.FLAGS.unparse_flags()
    sys.argv = ["command", *words]
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            command_line.run(main)
        except SystemExit as end:
            code = end.code or 0
    if isinstance(code, str):
        print(code, file=errors)
        code = 1
    return code, out.getvalue(), errors.getvalue()


if __name__ == "__main__":
    command = importlib.import_module(sys.argv[1])
    lines = json.loads(sys.argv[2])
    print(json.dumps([end_of(command.main, line) for line in lines]))
