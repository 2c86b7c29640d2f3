"""A RunForge workspace for tests: prepared and read back without any code of runforge, driven through its script."""

from __future__ import annotations

from contextlib import contextmanager
import json
import os
from pathlib import Path
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from scripts import Answer, clean_environment, find_script, run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parent / "data" / "runforge"
#: nothing that is waited for takes longer, however busy the machine is
PATIENCE_S = 60.0

Raw = dict[str, Any]


class Yard:
    """One workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.queue_folder = root / ".runforge" / "queue"
        self.runs = root / ".ml" / "runs"
        self.runs.mkdir(parents=True)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def make_run(self, run_id: str, *command: str, **request: Any) -> Path:
        """A run folder with a command request."""
        return self.make_request(run_id, {"version": 1, "command": list(command or ("true",)), **request})

    def make_request(self, run_id: str, request: Raw) -> Path:
        folder = self.runs / run_id
        folder.mkdir()
        (folder / "request.json").write_text(json.dumps(request))
        return folder

    def write_queue(self, *jobs: Raw) -> None:
        """A queue.json as another tool writes it: as a whole, without any lock."""
        self.queue_folder.mkdir(parents=True, exist_ok=True)
        defaults = {"kind": "run", "group_id": None, "priority": 0, "state": "queued", "attempt": 1}
        filled = [
            defaults | {"job_id": f"job_{number}", "created_at": f"2026-02-01T15:00:{number:02d}"} | job
            for number, job in enumerate(jobs)
        ]
        new = self.queue_folder / "queue.json.theirs"
        new.write_text(json.dumps({"version": 1, "kind": "execution_queue", "max_parallel": 2, "jobs": filled}))
        new.rename(self.queue_folder / "queue.json")

    def plan(self, *command: str, values: list[Any], path: str = "env.X", **more: Any) -> Raw:
        """A sweep plan of command runs over one parameter."""
        return {
            "version": 1,
            "kind": "sweep_plan",
            "created_at": "2026-02-01T15:00:00Z",
            "created_by": "tests",
            "workspace": str(self.root),
            "group": {"name": "tiny sweep!", "notes": None},
            "base_request": {"version": 1, "command": list(command or ("true",))},
            "strategy": {"type": "grid", "parameters": [{"path": path, "values": values}]},
            "execution": {"max_parallel": 2},
            **more,
        }

    def write_plan(self, plan: Raw | str, name: str = "plan.json") -> Path:
        path = self.root / name
        path.write_text(plan if isinstance(plan, str) else json.dumps(plan))
        return path

    def enqueue_sweep(self, *command: str, values: list[Any], **more: Any) -> str:
        """Queue a sweep; its group."""
        path = self.write_plan(self.plan(*command, values=values, **more))
        answer = self.cli("enqueue-sweep", "--plan", str(path), "--json")
        assert answer.code == 0, answer.stderr
        group_id: str = answer.json["group_id"]
        return group_id

    # --- through the script ------------------------------------------------------------------------------------------

    def cli(self, *words: str, cwd: Path | None = None, **environment: str) -> Answer:
        return run_script("runforge-cli", *words, cwd=cwd or self.root, **environment)

    def ok(self, *words: str, cwd: Path | None = None, **environment: str) -> Answer:
        """A command that must succeed."""
        answer = self.cli(*words, cwd=cwd, **environment)
        assert answer.code == 0, answer
        return answer

    @contextmanager
    def daemon(self, *words: str, **environment: str) -> Iterator[Daemon]:
        """A daemon that serves the workspace while the block runs; it is killed if it does not end by itself."""
        running = Daemon.start(self, *words, **environment)
        try:
            running.wait_for("[RF:DAEMON=STARTED")
            yield running
        finally:
            running.end()

    # --- reading back ------------------------------------------------------------------------------------------------

    def queue(self) -> Raw:
        return read(self.queue_folder / "queue.json")

    def jobs(self) -> list[Raw]:
        jobs: list[Raw] = self.queue()["jobs"]
        return jobs

    def states(self) -> dict[str, str]:
        """Run -> state of its last job."""
        return {job["run_id"]: job["state"] for job in self.jobs()}

    def group(self, group_id: str) -> Raw:
        return read(self.root / ".runforge" / "groups" / group_id / "group.json")

    def daemon_json(self) -> Raw:
        return read(self.queue_folder / "daemon.json")

    def result(self, run_id: str) -> Raw:
        return read(self.runs / run_id / "result.json")

    def log(self, run_id: str) -> str:
        return (self.runs / run_id / "logs.txt").read_text()

    def events(self) -> list[Raw]:
        return [json.loads(line) for line in (self.queue_folder / "events.jsonl").read_bytes().splitlines()]


class Daemon:
    """A running daemon, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @classmethod
    def start(cls, yard: Yard, *words: str, **environment: str) -> Daemon:
        return cls(
            subprocess.Popen(
                [find_script("runforge-cli"), "daemon", "--workspace", str(yard.root), *words],
                cwd=yard.root.parent,
                env=clean_environment(yard.root.parent, **environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )

    def wait_for(self, text: str, count: int = 1) -> str:
        """Wait until the daemon has said it so often, counted from now; the line that said it last."""
        left = count
        while True:
            line = self._next_line()
            if line is None:
                pytest.fail(f"the daemon ended before it said {text!r}; it said:\n" + "".join(self.said))
            left -= text in line
            if not left:
                return line

    def stop(self) -> int:
        """Ask it to stop, and wait for that; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """As a power cut would, for the daemon alone."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        return code

    def rest(self) -> str:
        """All that it ever said, once it has ended."""
        while (line := self._next_line()) is not None:
            del line
        return "".join(self.said)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _next_line(self) -> str | None:
        try:
            line = self._lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            pytest.fail("the daemon says nothing; it said:\n" + "".join(self.said))
        if line is None:
            self._lines.put(None)
        else:
            self.said.append(line)
        return line

    def _listen(self) -> None:
        if self.process.stdout is None:
            raise AssertionError("started with a pipe")
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def read(path: Path) -> Raw:
    raw: Raw = json.loads(path.read_bytes())
    return raw


def until(holds: Callable[[], object]) -> None:
    """Look again and again until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"it did not come true within {PATIENCE_S:g} s")
        time.sleep(0.005)


def python_m(yard: Yard, *words: str) -> Answer:
    """As RunForge Desktop starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "runforge_cli", *words],
        cwd=yard.root,
        env=clean_environment(yard.root),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return Answer(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def own_process(words: list[str], cwd: Path) -> subprocess.Popen[str]:
    """A Python program beside the test."""
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=cwd,
        env=clean_environment(cwd) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
