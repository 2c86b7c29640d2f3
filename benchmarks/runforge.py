"""runforge against task-spooler and against a bare spawn loop; and what a queue of 100,000 jobs costs.

Runs that do nothing are started on two slots, the candidates taking turns: `bare` starts the program in a loop and
waits for it; `bare, with a log` also gives each run a session and a file of its own, as every queue must; task-spooler
(`tsp`, Debian package task-spooler) gets one job per call, which is how it is used, and runs the first one while the
others are still coming; runforge gets one sweep, which is queued whole or not at all. What is compared is the time from
the first start to the last end; with the command that enqueues the sweep before it, runforge is given as well.

    python benchmarks/runforge.py             1,000 runs a round, 100,000 jobs
    python benchmarks/runforge.py 300 10000   smaller

Every run makes two files, so what a new file costs is part of the figures, and is printed first. ext4 takes up to 30
times as long for it where many files were deleted in the last minutes: nothing is deleted between rounds, and
QUEUEYARD_BENCH_DIR can name a folder where nobody else deletes.
Without task-spooler its figures are left out and said to be missing; every other target still counts.
"""

from __future__ import annotations

from contextlib import contextmanager
import json
import os
from pathlib import Path
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import msgspec

import measuring
from queueyard.runforge.lineup import LineUp
from queueyard.runforge.records import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
JOBS = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
ROUNDS = 5
SLOTS = 2
GROUPS = max(1, JOBS // 100)
SWEEP = JOBS // 10
SCRIPT = str(Path(sys.executable).with_name("runforge-cli"))
TRUE = shutil.which("true") or "/bin/true"
IDLE_S = 20.0


# --- candidates ------------------------------------------------------------------------------------------------------


def bare_loop(folder: Path | None) -> float:
    """Runs per second of a loop that only starts and waits."""
    start = time.perf_counter()
    selector = selectors.DefaultSelector()
    left, live = RUNS, 0
    while left or live:
        while live < SLOTS and left:
            left -= 1
            live += 1
            output: Any = subprocess.DEVNULL
            if folder is not None:
                output = (folder / f"{left}.txt").open("wb")
            child = subprocess.Popen(
                [TRUE], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=folder is not None
            )
            if folder is not None:
                output.close()
            selector.register(os.pidfd_open(child.pid), selectors.EVENT_READ, child)
        for key, _ in selector.select():
            selector.unregister(key.fd)
            os.close(key.fd)
            key.data.wait()
            live -= 1
    return RUNS / (time.perf_counter() - start)


class TaskSpooler:
    """A server of its own, with its socket and its output files in a folder of ours."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._env = os.environ | {"TS_SOCKET": str(folder / "socket"), "TMPDIR": str(folder), "TS_MAXFINISHED": "10"}
        self._tsp("-S", str(SLOTS))

    def rate(self) -> float:
        """Runs per second, submitted one by one, until the last is over."""
        start = time.perf_counter()
        for _ in range(RUNS):
            self._tsp(TRUE)
        last = self._tsp(TRUE)
        self._tsp("-w", last)
        while any(word in self._tsp() for word in (" queued ", " running ")):
            time.sleep(0.001)
        return RUNS / (time.perf_counter() - start)

    def close(self) -> None:
        self._tsp("-K")

    def _tsp(self, *words: str) -> str:
        return subprocess.run(["tsp", *words], env=self._env, capture_output=True, text=True, check=False).stdout


class RunForge:
    """A workspace with its daemon."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        #: from the start of the last daemon to the daemon.json that says so
        self.running_after_s = 0.0

    def rates(self, plan: Path) -> tuple[float, float]:
        """Runs per second: from the command to the last end, and from the first start to the last end."""
        with self.daemon() as daemon:
            start = time.perf_counter()
            run_script("enqueue-sweep", "--plan", str(plan), "--workspace", str(self.root))
            first, ended = None, 0
            for line in daemon.stdout or ():
                if first is None and "JOB_STARTED" in line:
                    first = time.perf_counter()
                ended += "JOB_DONE" in line
                if ended == RUNS:
                    break
            end = time.perf_counter()
        return RUNS / (end - start), RUNS / (end - (first or start))

    @contextmanager
    def daemon(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A daemon that has said that it is there."""
        process = subprocess.Popen(
            [SCRIPT, "daemon", "--workspace", str(self.root), "--max-parallel", str(SLOTS), *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            start, told = time.perf_counter(), self.root / ".runforge" / "queue" / "daemon.json"
            while process.poll() is None and not told.exists():
                time.sleep(0.001)
            self.running_after_s = time.perf_counter() - start
            if process.stdout is not None:
                process.stdout.readline()
            yield process
        finally:
            process.terminate()
            process.communicate()

    def write_queue(self, jobs: int) -> None:
        """A queue.json as another tool would write it, with `jobs` that wait behind runs that do not end."""
        listed = [job(number) for number in range(jobs)]
        for number in range(SLOTS):
            folder = self.root / ".ml" / "runs" / f"endless-{number}"
            folder.mkdir(parents=True)
            (folder / "request.json").write_text('{"version": 1, "command": ["sleep", "600"]}')
            listed[number] = msgspec.structs.replace(listed[number], run_id=folder.name, priority=9)
        queue = {"version": 1, "kind": "execution_queue", "max_parallel": SLOTS, "jobs": listed}
        (self.root / ".runforge" / "queue").mkdir(parents=True)
        (self.root / ".runforge" / "queue" / "queue.json").write_bytes(msgspec.json.encode(queue))


def job(number: int) -> Job:
    group = f"grp_20260201_150000_sweep_{number % GROUPS:04d}"
    created = f"2026-02-01T15:00:00.{number:06d}"
    run = f"20260201-150000-sweep-{number:06d}"
    return Job(job_id=f"job_20260201_150000_{number:06d}", run_id=run, group_id=group, created_at=created)


def write_plan(path: Path, workspace: Path, runs: int) -> Path:
    plan = {
        "version": 1,
        "kind": "sweep_plan",
        "workspace": str(workspace),
        "group": {"name": "no-op"},
        "base_request": {"version": 1, "command": [TRUE]},
        "strategy": {"type": "grid", "parameters": [{"path": "env.N", "values": list(range(runs))}]},
    }
    path.write_text(json.dumps(plan))
    return path


def run_script(*words: str) -> None:
    subprocess.run([SCRIPT, *words], check=True, stdout=subprocess.DEVNULL)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


# --- figures ---------------------------------------------------------------------------------------------------------


def making_files(folder: Path) -> None:
    folder.mkdir()
    taken = measuring.seconds(lambda: [(folder / str(number)).write_bytes(b"x") for number in range(RUNS)])
    measuring.report("a new file in the folder of this benchmark", taken / RUNS * 1e6, "us")


def throughput(folder: Path) -> None:
    has_tsp = shutil.which("tsp") is not None
    spooler = TaskSpooler(folder / "tsp") if has_tsp else None
    rates: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        logs = folder / f"bare-{number}"
        logs.mkdir()
        forge = RunForge(folder / f"ws-{number}")
        plan = write_plan(folder / f"plan-{number}.json", forge.root, RUNS)
        rates.setdefault("bare spawn loop", []).append(bare_loop(None))
        rates.setdefault("bare spawn loop, with a log", []).append(bare_loop(logs))
        if spooler is not None:
            rates.setdefault("task-spooler", []).append(spooler.rate())
        whole, running = forge.rates(plan)
        rates.setdefault("runforge, with enqueueing", []).append(whole)
        rates.setdefault("runforge, once it runs", []).append(running)
    if spooler is not None:
        spooler.close()
    for name, found in rates.items():
        measuring.report(f"{name}, {SLOTS} slots", statistics.median(found), "runs/s")
    against("runforge / task-spooler", rates, "runforge, once it runs", "task-spooler", 1.5)
    against("runforge, with enqueueing / task-spooler", rates, "runforge, with enqueueing", "task-spooler")
    against("runforge / bare spawn loop", rates, "runforge, once it runs", "bare spawn loop", 0.5)
    against("runforge / bare spawn loop, with a log", rates, "runforge, once it runs", "bare spawn loop, with a log")


def against(what: str, rates: dict[str, list[float]], ours: str, theirs: str, at_least: float | None = None) -> None:
    """The median of the ratios within each round: a slow minute hits both sides of a ratio."""
    if theirs not in rates:
        print(f"{what:<64} not measured: {theirs} is not installed (Debian: apt-get install task-spooler)")
        return
    ratios = [mine / other for mine, other in zip(rates[ours], rates[theirs], strict=True)]
    measuring.report(what, statistics.median(ratios), "x", at_least=at_least)


def enqueueing(folder: Path) -> None:
    taken = []
    for number in range(3):
        workspace = folder / f"sweep-{number}"
        workspace.mkdir()
        plan = write_plan(folder / f"sweep-{number}.json", workspace, SWEEP)
        start = time.perf_counter()
        run_script("enqueue-sweep", "--plan", str(plan))
        taken.append(time.perf_counter() - start)
    measuring.report(f"enqueue-sweep of {SWEEP:,} runs", statistics.median(taken), "s", at_most=2.0)


def deciding() -> None:
    jobs = {one.job_id: one for one in map(job, range(JOBS))}
    line_up = LineUp()
    for one in jobs.values():
        line_up.add(one)
    taken = []
    for _ in range(min(JOBS, 20_000)):
        start = time.perf_counter()
        name = line_up.next()
        chosen = jobs[name or ""]
        line_up.serve(chosen)
        line_up.forget(chosen)
        taken.append(time.perf_counter() - start)
    what = f"a decision among {JOBS:,} jobs in {GROUPS:,} groups"
    measuring.report(f"{what}, median", statistics.median(taken) * 1000, "ms", at_most=1.0)
    measuring.report(f"{what}, 99th percentile", statistics.quantiles(taken, n=100)[98] * 1000, "ms")


def large_queue(folder: Path) -> None:
    forge = RunForge(folder / "large")
    forge.write_queue(JOBS)
    start = time.perf_counter()
    with forge.daemon() as daemon:
        what = f"{JOBS:,} jobs of another tool"
        measuring.report(f"daemon.json says running, {what}", forge.running_after_s, "s", at_most=1.0)
        measuring.report(f"the daemon has taken over {what}", time.perf_counter() - start, "s")
        while cpu_share(daemon.pid, 3.0) > 0.5:
            pass  # it makes a group.json for each of the groups, and writes the queue in its own words
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            run_script("queue-status", "--workspace", str(forge.root))
            taken.append(time.perf_counter() - start)
        measuring.report(f"queue-status of {JOBS:,} jobs", statistics.median(taken), "s", at_most=0.5)
        measuring.report(
            f"memory of the daemon with {JOBS:,} jobs", megabytes(daemon.pid, "VmRSS"), "MB", at_most=200.0
        )
        measuring.report(f"memory of the daemon with {JOBS:,} jobs, at its peak", megabytes(daemon.pid, "VmHWM"), "MB")
        measuring.report(f"CPU of the daemon while {JOBS:,} jobs wait", cpu_share(daemon.pid, IDLE_S), "%", at_most=0.5)
        daemon.terminate()  # a second signal does not wait for the runs that do not end


def idling(folder: Path) -> None:
    forge = RunForge(folder / "idle")
    with forge.daemon() as daemon:
        measuring.report("daemon.json says running, empty queue", forge.running_after_s, "s", at_most=1.0)
        time.sleep(1.0)
        measuring.report("CPU of a daemon with nothing to do", cpu_share(daemon.pid, IDLE_S), "%", at_most=0.5)


def cpu_share(pid: int, for_s: float) -> float:
    before = cpu_seconds(pid)
    time.sleep(for_s)
    return (cpu_seconds(pid) - before) / for_s * 100


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="runforge-bench-", dir=os.environ.get("QUEUEYARD_BENCH_DIR")))
    try:
        making_files(folder / "files")
        throughput(folder)
        enqueueing(folder)
        deciding()
        large_queue(folder)
        idling(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    measuring.finish()


if __name__ == "__main__":
    main()
