"""A real server, started through the installed script, and the two ways to talk to it: raw HTTP and the script."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
import json
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scripts import Answer, clean_environment, find_script, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STOPS_WITHIN_S = 30
SPACES = 200
_SPACES = [word for number in range(SPACES) for word in ("--space", f"space{number}")]


@dataclass(frozen=True, kw_only=True)
class Response:
    """What the server said."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Why it refused."""
        code: str = self.json["code"]
        return code


class RunningServer:
    """A server process, its data, and spaces that no other test uses."""

    def __init__(self, data: Path, *words: str, **environment: str) -> None:
        self.data = data
        self._words = words
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._spaces = iter([f"space{number}" for number in range(SPACES)])
        self.url = ""

    @property
    def log_path(self) -> Path:
        return self.data.parent / f"{self.data.name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *more: str, command: list[str] | None = None) -> None:
        """Start it, and wait until it says where it listens; on the same port when it is started again."""
        port = str(urlsplit(self.url).port) if self.url else "0"
        command = command or [os.fspath(find_script("jolli-ops"))]
        self._log = self.log_path.open("a")
        self._process = subprocess.Popen(
            [*command, "serve", "--json", "--port", port, "--data", str(self.data), *_SPACES, *self._words, *more],
            env=clean_environment(self.data.parent, **self._environment),
            cwd=self.data.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        told = ""
        for line in self._process.stdout:
            told += line
            if line.startswith("}"):
                break
        assert told or self.wait(), "it ended as if all were well"
        assert told, f"it did not start: {self.log_path.read_text()}"
        self.url = json.loads(told)["url"]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and give its exit code."""
        assert self._process is not None
        assert self._log is not None
        self._process.send_signal(number)
        try:
            code = self._process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._let_go()
        return code

    def ask_to_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> int:
        """Wait for it to end by itself; its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(STOPS_WITHIN_S)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._log is not None
        self._process.stdout.close()
        self._log.close()

    # --- raw ---------------------------------------------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, space: str | None = None, **headers: str
    ) -> Response:
        """One request on a connection of its own; header names are written with underscores."""
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"X-Jolli-Space": space} if space else {}
        if body is not None and "Content-Type" not in sent:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            lowered = {name.lower(): value for name, value in response.getheaders()}
            return Response(status=response.status, headers=lowered, body=response.read())
        finally:
            connection.close()

    def push(self, batch: dict[str, Any] | bytes, *, space: str | None = None, **headers: str) -> Response:
        body = batch if isinstance(batch, bytes) else json.dumps(batch).encode()
        return self.ask("POST", "/v1/sync/push", body, space=space, **headers)

    def pull(self, since: int = 0, *, space: str | None = None) -> Any:
        response = self.ask("POST", "/v1/sync/pull", json.dumps({"sinceCursor": since}).encode(), space=space)
        assert response.status == 200, response
        return response.json

    def feed(self, *, space: str | None = None, after: int = 0, limit: int = 5_000) -> list[dict[str, Any]]:
        response = self.ask("GET", f"/v1/sync/feed?after={after}&limit={limit}", space=space)
        assert response.status == 200, response
        entries: list[dict[str, Any]] = response.json["entries"]
        return entries

    def new_space(self) -> str:
        """A space that no other test uses."""
        return next(self._spaces)


@contextmanager
def running_server(
    folder: Path, *words: str, command: list[str] | None = None, **environment: str
) -> Iterator[RunningServer]:
    """A server that runs as long as the block does."""
    folder.mkdir(parents=True, exist_ok=True)
    server = RunningServer(folder / "data", *words, **environment)
    server.start(command=command)
    try:
        yield server
    finally:
        if server.running:
            server.stop()


class ScriptClient:
    """A user with a home of his own, who talks to one server and one space through the script."""

    def __init__(self, home: Path, server: str, space: str = "default", **environment: str) -> None:
        self.home = home
        self.home.mkdir(parents=True, exist_ok=True)
        self.workspace = home / "notes"
        self.workspace.mkdir(exist_ok=True)
        self.environment = {"JOLLI_SERVER": server, "JOLLI_SPACE": space, "JOLLI_HOME": str(home / "jolli")}
        self.environment |= environment

    def run(self, *words: str, stdin: str | bytes = b"", **environment: str) -> Answer:
        return run_script("jolli-ops", *words, cwd=self.workspace, stdin=stdin, **{**self.environment, **environment})

    def json(self, *words: str, code: int = 0, **environment: str) -> Any:
        """What the command answers with `--json`."""
        answer = self.run(*words, "--json", **environment)
        assert answer.code == code, answer
        return answer.json

    def start(self, *words: str, command: list[str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*(command or [os.fspath(find_script("jolli-ops"))]), *words],
            cwd=self.workspace,
            env=clean_environment(self.workspace, **self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, path: str, text: str | bytes) -> Path:
        target = self.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    @property
    def scope(self) -> Path:
        """The one folder below ~/.jolli/ops."""
        [folder] = sorted((self.home / "jolli" / "ops").iterdir())
        return folder

    def batch_files(self) -> list[str]:
        return sorted(path.name for path in self.scope.glob("REQ-*-??????.json"))


def op(number: int | str, **fields: Any) -> dict[str, Any]:
    """A new file, unless the fields say otherwise; a field that is None is left out."""
    whole = {
        "opId": f"OP{number}",
        "type": "upsert",
        "fileId": f"FILE{number}",
        "serverPath": f"notes/{number}.md",
        "baseVersion": 0,
        "content": f"text {number}",
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not None}


def batch(*ops: dict[str, Any], request: str = "REQ1", index: int = 1, total: int = 1, **fields: Any) -> dict[str, Any]:
    """The spec's request shape; a field that is None is left out."""
    whole = {"requestId": request, "batchIndex": index, "totalBatches": total, "ops": list(ops), **fields}
    return {name: value for name, value in whole.items() if value is not None}
