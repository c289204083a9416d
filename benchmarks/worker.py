"""The child process that sets one contender up and runs it when asked.

`benchmarks.process` starts it and speaks to it in lines of JSON: first what to set up,
then any number of {"run": repeats}, then {"close": true}.
"""

import importlib
import importlib.util
import json
import os
import sys
import time
import traceback

from zoo.common.machine import peak_bytes

ERROR_LINES = 3
INSTALL = 'pip install -e ".[benchmarks]"'


def main():
    """Answers requests until told to close, or until the parent is gone."""
    requests, answers = _private_streams()

    def answer(**message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        spec = json.loads(requests.readline())
        step, facts = _set_up(spec)
        answer(ready=facts)
        for line in requests:
            request = json.loads(line)
            if "close" in request:
                answer(peak_bytes=peak_bytes())
                break
            answer(**_run(step, request["run"], spec["warm_up"]))
    except Exception as error:
        traceback.print_exc()
        lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
        answer(error=" ".join(line.strip() for line in lines[:ERROR_LINES]))
        sys.exit(1)


def _private_streams():
    """Keeps stdin and stdout for itself: what libraries print goes to the log."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return requests, answers


def _set_up(spec):
    started = time.perf_counter()
    for name in spec["imports"]:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(
                f"{name.replace('_', '-')} is not installed: {INSTALL}"
            )
        importlib.import_module(name)
    imported = time.perf_counter()
    import_bytes = peak_bytes()
    step = load(spec["job"])(**spec["settings"])
    for _ in range(spec["warm_up"]):
        step()
    facts = {
        "import_seconds": imported - started,
        "import_bytes": import_bytes,
        "setup_seconds": time.perf_counter() - imported,
    }
    return step, facts


def _run(step, repeats, warm_up):
    # Since its last turn others had the caches, and its threads fell asleep.
    if warm_up:
        step()
    wall, cpu = [], []
    for _ in range(repeats):
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - wall_start)
        cpu.append(time.process_time() - cpu_start)
    return {"wall": wall, "cpu": cpu}


def load(job):
    """Returns the function that `job`, a "package.module:function", names."""
    module, _, function = job.partition(":")
    return getattr(importlib.import_module(module), function)


if __name__ == "__main__":
    main()
