"""The pipeline beside DuckDB, Polars, a plain Python loop and Spark's own sources, on the same files.

Run: make bench, or python benchmarks/pipeline.py [SCALE] [ROUNDS] [PART]... SCALE shrinks every number of records (1.0:
ten million); parts: full, fresh, growing, redis, watch, status, linear. The other engines are installed into a
throw-away environment (QUEUEYARD_BENCH_DIR keeps it, and is where the files are made).

Every candidate is a process of its own, and no classes of Spark are kept (`queueyard pipeline prepare`) but for the one
that says so. Seconds begin when its engine is imported or its session has started, and end when the result is on disk.
Memory is that of the process and of all that it starts: driver, JVM and Python workers.
"""

from __future__ import annotations

import os
from pathlib import Path
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from measuring import finish, report, seconds
from pipeline_peers.entries import filled_server
from pipeline_peers.lines import FILE, append_lines
from pipeline_peers.processes import Measured, engine, peers_python, spark
from pipeline_peers.watching import delays
from queueyard.kernel.events import System
from queueyard.pipeline.generator import generate
from queueyard.yard.places import add, place_at

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 10_000_000
ENTRIES = 3_000_000
STEPS = (1_000_000, 3_000_000, 10_000_000)
PEERS = {"duckdb": "duckdb.parquet", "polars": "polars.parquet", "python": "python.jsonl"}
_STATUS_EVENTS = 20_000
_STATUS_CALLS = 5
#: Systems whose histories are files
_IN_FILES = [system for system in System if system is not System.PANQUEUE]


class Bench:
    """One bench in one folder."""

    def __init__(self, folder: Path, peers: Path, *, scale: float, rounds: int) -> None:
        self._folder = folder
        self._peers = peers
        self._scale = scale
        self._rounds = rounds
        self._cache = folder / "cache"

    def full(self) -> None:
        """The latest state of every record, from nothing."""
        yard = self._yard("full")
        python = peers_python(self._peers)

        prepared = self._fresh("prepared")
        _prepare(prepared)

        def fold(cache: Path) -> Measured:
            return spark("fold", yard, self._fresh("full-home"), cache=cache)

        candidates: dict[str, Callable[[], Measured]] = {
            name: lambda name=name, to=to: engine(python, name, yard / FILE, self._folder / to)  # type: ignore[misc]
            for name, to in PEERS.items()
        }
        candidates |= {
            "spark, parse only": lambda: self._spark("parse", yard / FILE),
            "spark's JSON source": lambda: self._spark("parse-file", yard / FILE),
            "spark alone": lambda: self._spark("plain-fold", yard / FILE, self._fresh("spark.parquet")),
            "pipeline": lambda: fold(self._cache),
            "pipeline, prepared": lambda: fold(prepared),
        }
        taken: dict[str, list[Measured]] = {name: [] for name in candidates}
        for _ in range(self._rounds):
            for name, run in candidates.items():
                taken[name].append(run())
        for name, ones in taken.items():
            report(f"full: {name}", statistics.median(one.seconds for one in ones), "s")
            report(f"full: {name}, peak memory", _peak(ones), "MB")
        # Spark has two ways to parse lines, and the words of the bound may mean either.
        for name in ("pipeline", "pipeline, prepared"):
            for parser in ("spark, parse only", "spark's JSON source"):
                report(f"full: {name} / {parser}", _ratio(taken[name], taken[parser]), "x", at_most=2.2)
        ours = taken["pipeline"]
        report("full: pipeline / spark alone", _ratio(ours, taken["spark alone"]), "x", at_most=1)
        report("full: pipeline / DuckDB", _ratio(ours, taken["duckdb"]), "x")
        lowest = min(_peak(taken[name]) for name in PEERS)
        report("full: peak memory of the pipeline / the lowest of the others", _peak(ours) / lowest, "x", at_most=1)
        for name, result in {**PEERS, "spark alone": "spark.parquet"}.items():
            there = self._folder / "full-home" / "silver" / "reservations"
            told = engine(python, "differ", self._folder / result, there)
            report(f"full: rows that differ from those of {name}", told.said["rows"], "rows", at_most=0)

    def fresh(self) -> None:
        """One line in a hundred is new; then all tables, gold and quality included, in the session of the first run."""
        yard, home, gold = self._yard("fresh"), self._fresh("fresh-home"), self._fresh("fresh-gold")
        python = peers_python(self._peers)
        said = self._spark("fresh", yard, home, python, gold, int(RECORDS * self._scale), self._rounds).said
        ours, theirs = said["ours"], said["theirs"]
        more, gold_after = (statistics.median(one[until] for one in ours) for until in ("seconds", "gold"))
        report("fresh: pipeline, everything", said["seconds"], "s")
        report("fresh: pipeline, after 1 % more, until gold is fresh", gold_after, "s")
        report("fresh: pipeline, after 1 % more, until quality is known too", more, "s")
        report("fresh: DuckDB, everything anew", statistics.median(theirs), "s")
        sooner = statistics.median(one["gold"] / other for one, other in zip(ours, theirs, strict=True))
        report("fresh: pipeline after 1 %, until gold is fresh / DuckDB anew", sooner, "x", at_most=1)
        report("fresh: pipeline after 1 % / pipeline, everything", more / said["seconds"], "x", at_most=0.1)
        report(
            "fresh: rows of gold that differ", engine(python, "differ-gold", home, gold).said["rows"], "rows", at_most=0
        )

    def growing(self) -> None:
        """Through Spark's file source and through ours; then more lines come to the same file."""
        yard = self._yard("growing")
        roles = {"Spark's file source": "stream-of-spark", "ours": "stream-of-ours"}
        taken: dict[str, list[Measured]] = {name: [] for name in roles}
        for _ in range(self._rounds):
            for name, role in roles.items():
                taken[name].append(self._spark(role, yard / FILE, self._fresh(role)))
        for name, ones in taken.items():
            report(f"growing: {name}", statistics.median(one.said["rows"] / one.seconds for one in ones), "rows/s")
        ratio = _ratio(taken["Spark's file source"], taken["ours"])
        report("growing: ours / Spark's file source, rows/s", ratio, "x", at_least=0.6)
        known, more = int(RECORDS * self._scale), 1_000
        append_lines(yard / FILE, more, first=known)
        for name, role in roles.items():
            lost = known + more - self._spark(role, yard / FILE, self._folder / role).said["rows"]
            bound = 0 if name == "ours" else None
            report(f"growing: lost of {more:,} lines that were appended, {name}", lost, "lines", at_most=bound)

    def redis(self) -> None:
        count = int(ENTRIES * self._scale)
        with filled_server(self._folder, count) as url:
            ones = [self._spark("redis", url, self._fresh("redis-rows")) for _ in range(self._rounds)]
        assert all(one.said["rows"] == count for one in ones)
        report("redis: entries to Parquet", count / statistics.median(o.seconds for o in ones), "/s", at_least=80_000)

    def watch(self) -> None:
        found = delays(self._fresh("watch"), lines=max(20, int(100 * self._scale)), before=1_000)
        report("watch: from append to commit, median", statistics.median(found), "s")
        report("watch: from append to commit, p95", statistics.quantiles(found, n=20)[-1], "s", at_most=1)

    def status(self) -> None:
        """It starts no Spark, so there is no session to be warm: cold is when nothing of it is in the page cache."""
        yard, home = self._generated("status", _STATUS_EVENTS), self._fresh("status-home")
        self._spark("run", yard, home)
        script = Path(sys.executable).with_name("queueyard")
        command = [str(script), "pipeline", "status", "--yard", str(yard), "--home", str(home)]

        def call() -> None:
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

        _forget(home, *map(Path, sys.path[1:]))
        report("status: cold", seconds(call), "s", at_most=8)
        report("status: warm", statistics.median(seconds(call) for _ in range(_STATUS_CALLS)), "s", at_most=1.5)

    def linear(self) -> None:
        """More events of all systems whose histories are files; each run from nothing."""
        taken: dict[int, Measured] = {}
        for step in STEPS:
            events = int(step * self._scale)
            yard = self._generated("linear", events)
            taken[events] = one = self._spark("run", yard, self._fresh("linear-home"))
            report(f"linear: {events:,} events", one.seconds, "s")
            report(f"linear: {events:,} events, peak memory", one.peak_bytes / 1e6, "MB")
        few, *_, many = taken
        ratio = (taken[many].seconds / many) / (taken[few].seconds / few)
        report(f"linear: time per event, {many:,} / {few:,}", ratio, "x", at_most=1.1)
        growth = taken[many].peak_bytes / taken[few].peak_bytes
        report(f"linear: peak memory, {many:,} / {few:,}", growth, "x", at_most=1.1)

    def _spark(self, role: str, *words: object) -> Measured:
        return spark(role, *words, cache=self._cache)

    def _yard(self, name: str) -> Path:
        """A repository with the lines of queen's reservations."""
        folder = self._fresh(name)
        append_lines(folder / FILE, int(RECORDS * self._scale))
        return folder

    def _generated(self, name: str, events: int) -> Path:
        folder = self._fresh(name)
        made = generate(folder, events=events, seed=1, systems=_IN_FILES, workers=os.cpu_count() or 1)
        for system, place in made.places:
            add(folder, place_at(system, place, cwd=folder))
        return folder

    def _fresh(self, name: str) -> Path:
        """A folder of this name with nothing in it, and none at all on disk."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        return self._folder / name


def _prepare(cache: Path) -> None:
    """Have classes of Spark kept there."""
    script = str(Path(sys.executable).with_name("queueyard"))
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    subprocess.run([script, "pipeline", "prepare"], env=environment, check=True, capture_output=True)


def _ratio(ones: list[Measured], others: list[Measured]) -> float:
    """Of the same round, so that a slow minute of the machine hits both; the median over the rounds."""
    return statistics.median(one.seconds / other.seconds for one, other in zip(ones, others, strict=True))


def _peak(ones: list[Measured]) -> float:
    return max(one.peak_bytes for one in ones) / 1e6


def _forget(*roots: Path) -> None:
    """Let the kernel drop what it keeps of these files; what a running process uses, it keeps."""
    for file in (file for root in roots for file in root.rglob("*") if file.is_file()):
        with file.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(scale: float, rounds: int, parts: list[str]) -> None:
    kept = os.environ.get("QUEUEYARD_BENCH_DIR")
    with tempfile.TemporaryDirectory(prefix="pipeline-bench-", dir=kept) as name:
        peers = Path(kept or name) / "pipeline-peers"
        bench = Bench(Path(name), peers, scale=scale, rounds=rounds)
        print(f"scale {scale:g}, {rounds} rounds, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
        for part in parts or ("full", "fresh", "growing", "redis", "watch", "status", "linear"):
            start = time.perf_counter()
            getattr(bench, part)()
            print(f"-- {part}: {time.perf_counter() - start:,.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    finish()


if __name__ == "__main__":
    # Whoever ends the bench ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main(float((sys.argv[1:] or ["1"])[0]), int((sys.argv[2:] or ["3"])[0]), sys.argv[3:])
