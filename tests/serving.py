"""HTTP servers on this machine, and what makes the zoo download from one."""

import contextlib
import functools
import http.server
import threading


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_):
        """A client that hangs up, or is killed, is part of the plan."""


@contextlib.contextmanager
def serving(handler, **state):
    """Runs a server whose attributes are `state`."""
    with Server(("127.0.0.1", 0), handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        vars(server).update(state)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Prints nothing."""


class Files(Quiet, http.server.SimpleHTTPRequestHandler):
    """Sends files."""

    def do_GET(self):
        self.server.requests.append(self.path)
        super().do_GET()


def serving_files(folder, handler=Files):
    """Runs a server of the files of a folder; `requests` has the paths asked for."""
    return serving(functools.partial(handler, directory=str(folder)), requests=[])


def use_mirror(monkeypatch, url, cache):
    """Lets the zoo download what is released from a server, into a new cache."""
    for name, value in {
        "KERAS_VIT_MIRROR": url,
        "KERAS_VIT_CACHE": str(cache),
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KERAS_VIT_OFFLINE", raising=False)
