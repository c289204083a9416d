"""`keras-vit` for a notebook under test: a script that asks the tests' fork server.

Started anew, each command would import TensorFlow for longer than it works.
"""

import json
import socketserver
import stat
import sys
import threading

import keras_vit_start

SCRIPT = f"""#!{sys.executable} -S
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(os.environ["FORKED_COMMANDS"])
    lines = asked.makefile("rw")
    request = dict(words=sys.argv[1:], cwd=os.getcwd(), environment=dict(os.environ))
    print(json.dumps(request), file=lines, flush=True)
    code, output = json.loads(lines.readline())
sys.stdout.write(output)
sys.exit(code)
"""


class ForkedCommands:
    """A folder for PATH, whose `keras-vit` runs in forks of a `ForkServer`.

    Args:
        folder: `pathlib.Path` of a new folder, of a short path, for a socket is there.
        server: `ForkServer`.
    """

    def __init__(self, folder, server):
        folder.mkdir()
        self.folder = folder
        script = folder / "keras-vit"
        script.write_text(SCRIPT)
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.environment = {"FORKED_COMMANDS": str(folder / "socket")}

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                request = json.loads(self.rfile.readline())
                command, *flags = request["words"]
                argv = [keras_vit_start.module(command), *flags]
                answer = server.run(argv, request["cwd"], request["environment"])
                self.wfile.write(json.dumps(answer).encode() + b"\n")

        self._listener = socketserver.UnixStreamServer(str(folder / "socket"), Handler)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.1,)
        )
        self._thread.start()

    def close(self):
        """Ends it; the `ForkServer` stays."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
