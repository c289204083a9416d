"""`keras-vit` and `python` for a page under test: scripts that ask a fork server.

Started anew, each command would import TensorFlow for longer than it works.
"""

import json
import socketserver
import stat
import sys
import threading

import keras_vit_start

SCRIPT = f"""#!{sys.executable} -S
import json, os, signal, socket, sys

# A notebook interrupts its kernel before it ends it by a message.
signal.signal(signal.SIGINT, signal.SIG_IGN)
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({{address!r}})
    lines = asked.makefile("rw")
    request = dict(words=sys.argv, cwd=os.getcwd(), environment=dict(os.environ))
    print(json.dumps(request), file=lines, flush=True)
    code, output, errors = json.loads(lines.readline())
sys.stdout.write(output)
sys.stderr.write(errors)
sys.exit(code)
"""


class ForkedCommands:
    """A folder for PATH, whose scripts run in forks of a `ForkServer`.

    `keras-vit COMMAND`, `python -m MODULE` and `python -c PROGRAM` are known.

    Args:
        folder: `pathlib.Path` of a new folder, of a short path, for a socket is there.
        server: `ForkServer`.
    """

    def __init__(self, folder, server):
        folder.mkdir()
        self.folder = folder
        address = str(folder / "socket")
        for name in ("keras-vit", "python"):
            script = folder / name
            script.write_text(SCRIPT.format(address=address))
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                request = json.loads(self.rfile.readline())
                answer = server.streams(
                    argv_of(*request["words"]), request["cwd"], request["environment"]
                )
                self.wfile.write(json.dumps(answer).encode() + b"\n")

        self._listener = socketserver.ThreadingUnixStreamServer(address, Handler)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.1,)
        )
        self._thread.start()

    def close(self):
        """Ends it; the `ForkServer` stays."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()


def argv_of(script, first, *words):
    """Returns what a `ForkServer` takes."""
    if script.endswith("keras-vit"):
        return [keras_vit_start.module(first), *words]
    return [*words] if first == "-m" else [first, *words]
