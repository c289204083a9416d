"""What libraries write to file descriptor 2 of a command: notices go, errors stay.

No test here imports TensorFlow: small programs write what it writes.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from train.common.watcher import NOISE, TITLE

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is hidden here")
# As TensorFlow 2.15 to 2.21, TFLite, JAX and absl print them.
NOTICES = """
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795424867.655102   17339 cudart_stub.cc:31] Could not find cuda drivers
W0000 00:00:1733.1 1 computation_placer.cc:177] computation placer
2024-05-01 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom
2024-05-01 10:00:00.123456: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TRT
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow
E0000 00:00:1795424868.711139   17339 cuda.cc:52] failed call to cuInit: UNKNOWN (303)
2026-11-25 16:01:00.1: E external/cuda.cc:51] failed call to cuInit: UNKNOWN (303)
E0000 00:00:1733 1 cuda_driver.cc:51] failed call to cuInit: CUDA_ERROR_NO_DEVICE: none
E0000 00:00:1795.5 30620 util.cc:131] oneDNN supports DT_UINT8 only on AVX. Falling back
2026-11-25 16:28:54.6: E core/util.cc:131] oneDNN supports DT_UINT8 only on\
 platforms with AVX-512. Falling back to the default
E0000 0 meta_optimizer.cc:967] layout failed: INVALID_ARGUMENT: Size of values 0 does\
 not match size of permutation 4 @ fanin shape invit/dropout/SelectV2-2-Transpose
2024-05-01 10:00:00.123456: E external/cuda_dnn.cc:92] Unable to register cuDNN factory
E0000 00:00:1733.1 1 cuda_blas.cc:1418] Unable to register cuBLAS factory: twice
E0000 00:00:1733.1 1 computation_placer.cc:177] computation placer already registered.
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
WARNING: Attempting to use a delegate that only supports static-sized tensors
I1123 09:07:13.123456 140123456 dataset_info.py:12] Load dataset info from /x
""".splitlines()[1:]
# Messages that must be seen.
ERRORS = """
E0000 00:00:1795424868.711139   17339 cuda.cc:52] failed call to cuInit: UNKNOWN: error
E0000 00:00:1795458782.521803   30620 util.cc:131] oneDNN: the product failed
E0000 00:00:1733.1 7 meta_optimizer.cc:967] layout failed: INTERNAL: no memory
F0000 00:00:1733.1 17339 tensor.cc:7] Check failed: 1 == 2
2024-05-01 10:00:00.123456: E tensorflow/core/framework/op.cc:1] out of memory
2024-05-01 10:00:00.123456: F tensorflow/core/platform/env.cc:1] Check failed
terminate called after throwing an instance of 'std::bad_alloc'
ImportError: libcudart.so.12: cannot open shared object file
I have no idea what this is
WARNING: the disk is nearly full
""".splitlines()[1:]


@pytest.mark.parametrize("line", NOTICES + ERRORS)
def test_notices_are_known_and_errors_and_unknown_lines_are_no_noise(line):
    assert bool(NOISE.match(line.encode())) == (line in NOTICES)


PROGRAM = """
{before}
import concurrent.futures, ctypes, os, subprocess, sys, warnings
from train.common import library_messages, watcher

# A busy machine may take long between two writes, and until the watcher is through.
watcher._PATIENCE_SECONDS = watcher._FAREWELL_SECONDS = 600
NOTICE = sys.argv[1].encode() + b"\\n"
libc = ctypes.CDLL(None)

with library_messages.hidden():
    os.write(2, NOTICE)
    libc.write(2, NOTICE, len(NOTICE))
    {program}
"""
HIDDEN = 2 * f"{NOTICES[1]}\n"


def run(program, *, python=(), before="", **options):
    code = PROGRAM.format(program=program, before=before)
    return subprocess.run(
        [sys.executable, *python, "-c", code, NOTICES[1]],
        text=True,
        cwd=ROOT,
        **{"stderr": subprocess.PIPE, "stdout": subprocess.PIPE} | options,
    )


@posix
def test_notices_do_not_appear_and_all_else_does():
    done = run("""
    os.write(2, b"an err"); os.write(2, b"or\\n")
    print("of Python", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo of a child >&2; echo INFO: none >&2"])
    warnings.warn("our own")
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        list(pool.map(lambda _: os.write(2, b"of threads\\n"), range(50)))
    os.write(2, b"no end")
    """)
    assert done.returncode == 0 and done.stderr.endswith("no end\n")
    shown = sorted(done.stderr.removesuffix("no end\n").splitlines())
    others = ["an error", "of Python", "of a child", "warning: our own"]
    assert shown == sorted(others + ["of threads"] * 50)


SHOWN = re.escape(TITLE.decode() + HIDDEN)
# Each row has what ends the program, its status, and the standard error.
ENDS = {
    "import no_such_one": (1, f"{SHOWN}Traceback (.*\n)*.* named 'no_such_one'\n"),
    "libc.write(2, b'bad', 3); os.abort()": (-signal.SIGABRT, f"bad\n{SHOWN}"),
    "os.kill(os.getpid(), 9)": (-signal.SIGKILL, SHOWN),
    # No Python code runs any more.
    "os._exit(3)": (3, SHOWN),
    "sys.exit(3)": (3, ""),
    "sys.exit('error: no')": (1, "error: no\n"),
}


@posix
@pytest.mark.parametrize("end", ENDS)
def test_errors_and_crashes_show_what_was_hidden_and_exits_do_not(end):
    done, (status, shown) = run(end), ENDS[end]
    assert done.returncode == status
    assert re.fullmatch(shown, done.stderr), done.stderr


@posix
def test_of_warnings_of_decoders_one_is_shown_and_the_others_counted():
    done = run("""
    for number in range(3):
        os.write(2, b"Corrupt JPEG data: %d extraneous bytes\\n" % number)
    os.write(2, b"libpng warning: iCCP: known incorrect sRGB profile\\n")
    """)
    assert done.stderr.splitlines() == [
        "Corrupt JPEG data: 0 extraneous bytes",
        "libpng warning: iCCP: known incorrect sRGB profile",
        "2 more lines begin with Corrupt JPEG data: libraries read such photos as far "
        "as they can",
    ]


@posix
def test_without_a_standard_error_nothing_breaks():
    code = "import sys\nfrom train.common import library_messages as found\n"
    code += "with found.hidden():\n    print(sys.stderr)\n"
    command = ["sh", "-c", f"exec {sys.executable} -c '{code}' 2>&-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "None\n")


@posix
def test_python_keeps_its_terminal():
    ours, theirs = os.openpty()
    done = run(
        "print(sys.stderr.isatty(), os.isatty(2), sys.stderr.encoding)", stderr=theirs
    )
    os.close(theirs)
    os.close(ours)
    assert done.stdout == "True False utf-8\n"


@posix
def test_a_process_that_has_a_backend_is_left_alone():
    has_backend = "import sys, types; sys.modules['jax'] = types.ModuleType('jax')"
    assert run("pass", before=has_backend).stderr == HIDDEN


FAILURES = """
import logging, os, subprocess, sys, threading
from train.common import library_messages
{hidden}

def fail():
    logging.getLogger("apache_beam").error("an error")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    os.write(2, b"of C++\\n")
    subprocess.run(["sh", "-c", "echo of a child >&2"])

with library_messages.hidden_errors():
    fail()
    print("of ours", file=sys.stderr)
{after}
"""


@posix
def test_errors_of_libraries_are_hidden_where_their_messages_are():
    def shown(hidden: str, after: str = "") -> str:
        code = FAILURES.format(hidden=hidden, after=after)
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stderr

    hidden = "voices = library_messages.hidden()\nvoices.__enter__()"
    assert shown(hidden) == "of ours\n"
    others = ["an error", "ZeroDivisionError", "of C++", "of a child", "of ours"]
    # As with --verbose.
    assert all(line in shown("") for line in others)
    # And once more where the library has ended.
    assert all(line in shown(hidden, "fail()") for line in others)
    nowhere = "import io; logging.disable(30); sys.stderr = io.StringIO()"
    assert shown(nowhere).splitlines() == ["of C++", "of a child"]


# How a command ends while errors are hidden, and the standard error: the lines of C++
# are shown where it dies, or where the library is what has failed.
HIDDEN_ENDS = {
    "os.kill(os.getpid(), 9)": f"{TITLE.decode()}{HIDDEN}of C++\n",
    "raise LibraryError('no')": f"{TITLE.decode()}of C++\n",
    "raise RunError('no')": "",
    "sys.exit(3)": "",
    "pass": "",
}


@posix
@pytest.mark.parametrize("end", HIDDEN_ENDS)
def test_errors_that_were_hidden_are_shown_where_a_library_has_failed(end):
    done = run(f"""
    from train.common.errors import LibraryError, RunError
    try:
        with library_messages.hidden_errors():
            os.write(2, b"of C++\\n")
            {end}
    except RunError:
        pass
    """)
    assert done.stderr == HIDDEN_ENDS[end]


def test_warnings_and_records_of_libraries():
    program = """
    import logging
    def warn_as(name):
        exec("import warnings; warnings.warn('of ' + __name__)", {"__name__": name})
    for name in ("keras.src.layers", "jax._src", "train.data.load", "absl.app"):
        warn_as(name)
    logging.getLogger("huggingface_hub").warning("unauthenticated")
    logging.getLogger("tensorflow").error("an error")
    logging.getLogger("gcsfs").error("an error that a message names")
    """
    shown = "warning: of train.data.load\nwarning: of absl.app\nan error\n"
    assert run(program).stderr == shown
    always = run(program, python=["-W", "always"])
    assert "UserWarning: of keras.src.layers" in always.stderr


def test_warnings_name_flags_and_of_one_place_ten_are_shown():
    program = """
    from train.data import data_flags
    data_flags.define_bits()
    for number in [0, 0, *range(12)]:
        warnings.simplefilter("always")
        warnings.warn(f"{number}.png is dark: say so with bits=12.")
    """
    said = "warning: {}.png is dark: say so with --bits=12."
    assert run(program).stderr.splitlines() == [
        *(said.format(number) for number in range(9)),
        f"{said.format(9)} (more of these are not shown)",
    ]


def test_of_photos_one_warning_is_shown_and_the_others_counted():
    program = """
    from zoo.photos.sixteen_bits import DarkPhotoWarning
    class OtherPhotoWarning(DarkPhotoWarning):
        pass
    def warn(kind, number):
        warnings.warn(f"{number}.png is dark.", kind)
    for number in [0, 1, 0, *range(12)]:
        warn(DarkPhotoWarning, number)
    for number in range(3):
        warn(OtherPhotoWarning, number)
    from train.common import library_messages
    library_messages.no_more_of(OtherPhotoWarning)
    """
    assert run(program).stderr.splitlines() == [
        "warning: 0.png is dark.",
        "warning: 11 more photos like this one: 0.png is dark.",
    ]


def test_the_library_is_left_as_it_is():
    code = """
import logging, os, sys, warnings, zoo
before = list(warnings.filters)
import train.common.command_line
assert logging.root.manager.disable == 0 and before == warnings.filters
assert sys.stderr.fileno() == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, b"")
