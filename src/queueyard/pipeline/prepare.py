"""Have Java keep what it makes of Spark's classes, so that every later start on this machine is sooner done."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import replace_file
from queueyard.kernel.output import UNSEEN
from queueyard.pipeline.errors import CannotPrepare
from queueyard.pipeline.generator import generate
from queueyard.pipeline.installation import is_whole
from queueyard.pipeline.queries import ask
from queueyard.pipeline.run import run
from queueyard.pipeline.session import Spark, fit, place_of_classes, start
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import place_at

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import SparkSession

    from queueyard.kernel.output import Progress

_EVENTS = 1_000
#: for these, plans are compiled, as for a long history
_MANY_ROWS = 1 << 30
_QUESTION = "SELECT kind, count(*) AS events, max(at) AS last FROM events GROUP BY kind ORDER BY kind"
#: to write it all down takes some ten seconds
_LONGEST_END_S = 300.0


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Where the classes are kept now, and how large that is."""

    path: str
    bytes: int


def prepare(*, memory: str, bar: Progress = UNSEEN) -> Prepared:
    """Let a session do what a run and a question do, and keep its classes.

    CannotPrepare, and nothing has changed, if this installation or its Java cannot.
    """
    classes = place_of_classes()
    if classes is None:
        raise CannotPrepare(
            "this Spark was not installed into this Python by pip, or there is no folder for what is kept",
            hint="Set XDG_CACHE_HOME to a folder that can be written, or go on without: all it costs is time.",
        )
    # Sessions take what stands under the right name, so it gets there when it is whole.
    fresh = classes.with_name(f"{classes.stem}.{os.getpid()}.new")
    try:
        _record(fresh, memory, bar)
        if not is_whole(fresh):
            raise CannotPrepare(
                "this Java has kept no classes",
                hint=f"Look whether {fresh.parent} has room for 200 MB, or: apt-get install openjdk-17-jre-headless",
            )
        replace_file(classes, fresh.read_bytes())
    finally:
        fresh.unlink(missing_ok=True)
    return Prepared(path=str(classes), bytes=classes.stat().st_size)


def _record(classes: Path, memory: str, bar: Progress) -> None:
    session = start(Spark(driver_memory=memory, record_to=classes))
    try:
        _work(session, bar)
    finally:
        with bar.step("writing"):
            _end(session)


def _work(session: SparkSession, bar: Progress) -> None:
    with TemporaryDirectory(prefix="queueyard-prepare-") as name:
        made = generate(Path(name), events=_EVENTS, seed=1, workers=1)
        house = Warehouse(session, f"{name}/tables")
        run(house, [place_at(system, place, cwd=Path(name)) for system, place in made.places], bar=bar)
        fit(session, rows=_MANY_ROWS)
        ask(house, _QUESTION, limit=_EVENTS)


def _end(session: SparkSession) -> None:
    """Let Java end as it does when Python has, and wait for it: only then does it write."""
    java: Popen[bytes] = session.sparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001
    session.stop()
    if java.stdin is not None:
        java.stdin.close()
    try:
        java.wait(_LONGEST_END_S)
    except TimeoutExpired:
        java.kill()
