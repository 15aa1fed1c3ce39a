"""`neuraldbg view`: a page on this machine that shows runs, also while they train."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from neuraldbg.cli import output, places, runs
from neuraldbg.cli.parsing import Parser
from neuraldbg.errors import NeuralDbgError, RunFileError, UsageError

HOST: Final = "127.0.0.1"
_TOKEN_BYTES: Final = 16
_MORE: Final = """\
Serves a page on 127.0.0.1 that lists the runs, shows one while it trains, compares two,
and links to the report. Only who has the address, with its token, can read it. Ctrl-C ends.
"""


def main(words: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    parser = Parser("view", _MORE)
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="of runs (default: as list)")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    options = parser.parse_args(words)
    server = serve(_folder(options.folder), options.port)
    output.result(f"{server.address}\n")
    output.finish(0)
    output.notice("Ctrl-C ends it")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0


def serve(folder: Path, port: int = 0) -> Server:
    """A server for a folder of runs, not yet serving.

    Raises:
        UsageError: The port is taken or is none.
    """
    try:
        return Server(folder, port)
    except (OSError, OverflowError) as error:
        msg = f"cannot listen on {HOST}:{port} ({error}); leave --port out to take a free one"
        raise UsageError(msg) from error


class Server(ThreadingHTTPServer):
    """Answers on this machine only, and only to who knows the token.

    Attributes:
        folder: Of the runs.
        address: The page's address, with the token.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.folder = folder
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.host = f"{HOST}:{self.server_port}"
        self.address = f"http://{self.host}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        """Answer one request; what goes wrong is said on the page."""
        asked = urlsplit(self.path)
        _, token, page, *rest = [*asked.path.split("/"), "", ""]
        # Another name for this machine in the Host header is how a foreign page would ask.
        known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if not known or self.headers.get("Host") != self.server.host or any(rest):
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")
            return
        query = {key: values[0] for key, values in parse_qs(asked.query).items()}
        try:
            self._answer(page, query)
        except (NeuralDbgError, KeyError) as error:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"{error}\n")

    def _answer(self, page: str, query: dict[str, str]) -> None:
        folder = self.server.folder
        if page == "state":
            self._send(HTTPStatus.OK, "application/json", _state(folder, query.get("id")))
            return
        answers = {
            "": lambda: _many(folder),
            "run": lambda: _one(folder, query["id"]),
            "report.html": lambda: _report(folder, query["id"]),
            "compare": lambda: _two(folder, query["a"], query["b"]),
        }
        if page not in answers:
            raise RunFileError(page)
        self._send(HTTPStatus.OK, "text/html", answers[page]())

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is the user's."""


def _folder(name: str | None) -> Path:
    from neuraldbg.store.locate import runs_dir

    folder = runs_dir() if name is None else Path(name)
    if name is not None and not folder.is_dir():
        msg = f"{name!r} is no folder; name one that holds run files"
        raise UsageError(msg)
    return folder


def _path(folder: Path, run: str) -> Path:
    """A run of this folder by its id, and nothing else on the disk."""
    from neuraldbg.store.locate import list_runs

    found = next((known.path for known in list_runs(folder) if known.id == run), None)
    if found is None:
        msg = f"no run {run!r} in this folder"
        raise RunFileError(msg)
    return found


def _state(folder: Path, run: str | None) -> str:
    """What tells a page whether to fetch itself again."""
    from neuraldbg.report.json import encode
    from neuraldbg.store.locate import list_runs
    from neuraldbg.store.reader import RunFile, changed

    if run is None:
        known = list_runs(folder)
        return encode({"stamp": str([(k.id, k.steps, k.finished) for k in known]), "said": ""})
    path = _path(folder, run)
    with RunFile(path) as file:
        fact = file.facts().run
    said = f"ended: {fact.finished}" if fact.finished else "running, or cut off"
    return encode({"stamp": str([*changed(path), fact.finished]), "said": said})


def _opened(folder: Path, run: str) -> runs.Opened:
    return runs.diagnose(str(_path(folder, run)))


def _many(folder: Path) -> str:
    from neuraldbg.report.html import live
    from neuraldbg.store.locate import list_runs

    return live.many(list_runs(folder), str(places.near(folder)))


def _one(folder: Path, run: str) -> str:
    from neuraldbg.report.html import live

    opened = _opened(folder, run)
    return live.one(opened.record, opened.diagnosis, run, f"report.html?id={quote(run)}")


def _report(folder: Path, run: str) -> str:
    from neuraldbg.report.html import render

    opened = _opened(folder, run)
    return render(opened.record, opened.diagnosis, run)


def _two(folder: Path, a: str, b: str) -> str:
    from neuraldbg.report.html import live

    first, second = _opened(folder, a), _opened(folder, b)
    return live.two((a, first.record, first.diagnosis), (b, second.record, second.diagnosis))
