"""The parent's side of a worker process."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


class WorkerError(Exception):
    """A contender could not be set up or run; the message says why."""


class Worker:
    """A contender in a process of its own.

    Args:
        contender: `benchmarks.contest.Contender`.
        log: path of the file for all that it prints.

    Attributes:
        facts: dict of `import_seconds`, `import_bytes` (the peak memory once its
            libraries are imported) and `setup_seconds`; empty until `ready`.
    """

    def __init__(self, contender, log):
        self.log = pathlib.Path(log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.facts = {}
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "KERAS_BACKEND": contender.backend,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
        }
        with self.log.open("w") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        needed = ("job", "settings", "imports", "warm_up")
        self._spec = {name: getattr(contender, name) for name in needed}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def ready(self):
        """Sets the contender up."""
        self.facts = self._ask(self._spec)["ready"]
        return self.facts

    def run(self, repeats):
        """Runs the contender's step."""
        answer = self._ask({"run": repeats})
        return answer["wall"], answer["cpu"]

    def close(self):
        """Ends the process."""
        peak_bytes = self._ask({"close": True})["peak_bytes"]
        self._process.wait()
        return peak_bytes

    def kill(self):
        """Ends the process at once, if it still runs."""
        self._process.kill()
        # A request may be left that nobody reads any more.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, request):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{answer['error']} (log: {self.log})")
        return answer

    def _last_words(self):
        status = self._process.wait()
        reason = f"signal {-status}" if status < 0 else f"status {status}"
        # SIGKILL, which nobody but the kernel should have sent.
        hint = ", perhaps for want of memory" if status == -9 else ""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        return f"its process ended with {reason}{hint}{said} (log: {self.log})"
