"""`queueyard pipeline`: parse, call, print. Spark is imported only by commands that need it."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import update_wrapper
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import Script, examples, json_option
from queueyard.kernel.errors import UsageFault
from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from queueyard.kernel.locks import FileLock
    from queueyard.pipeline.bronze.ingest import Ingested
    from queueyard.pipeline.settings import PipelineSettings
    from queueyard.pipeline.status import Status
    from queueyard.pipeline.warehouse import Warehouse
    from queueyard.yard.places import Yard

_COMMON = (
    click.option("--yard", "yard_folder", type=click.Path(), metavar="DIR", help="The yard; default: found upwards."),
    click.option("--home", metavar="DIR", help="Where the tables are; default: .queueyard/pipeline in the yard."),
    click.option("--master", metavar="URL", help="A Spark master; default: all cores of this machine."),
    click.option(
        "--remote", metavar="URL", help="A Spark Connect server, sc://host:15002, or local: one is kept here."
    ),
    json_option,
)


class Call:
    """One call of one command: which yard, which tables, how to print."""

    def __init__(
        self, *, yard_folder: str | None, home: str | None, master: str | None, remote: str | None, as_json: bool
    ) -> None:
        from queueyard.pipeline.settings import home_of, load  # noqa: PLC0415
        from queueyard.yard.places import open_yard  # noqa: PLC0415

        self.out = Output(as_json=as_json)
        self.as_json = as_json
        self.yard: Yard = open_yard(Path(yard_folder or ".").resolve())
        self.settings: PipelineSettings = load(os.environ, home=home, master=master, remote=remote).values
        self.home = home_of(self.settings, Path(self.yard.root))

    @contextmanager
    def warehouse(self, *, reads: bool = False, changes: bool = True) -> Iterator[Warehouse]:
        """All tables, with a session that fits them, and what is new if it `reads` that.

        The first line is on the screen before Spark starts. LockTimeout, before it starts, if the call `changes` tables
        and somebody else does.
        """
        from queueyard.pipeline.lock import holding, lock_of  # noqa: PLC0415

        lock = lock_of(self.home)
        with holding(lock) if changes else nullcontext():
            yield from self._warehouse(lock, reads=reads)

    def _warehouse(self, lock: FileLock, *, reads: bool) -> Iterator[Warehouse]:
        self.out.note("starting Spark ...")
        from queueyard.pipeline.session import Spark, require_packages, start  # noqa: PLC0415

        require_packages()
        from queueyard.pipeline.size import rows_ahead, rows_of  # noqa: PLC0415

        session = start(
            Spark(
                master=self.settings.master,
                remote=self.settings.remote,
                driver_memory=self.settings.memory,
                rows=rows_ahead(self.home, self.yard.places) if reads else rows_of(self.home),
            )
        )
        from queueyard.pipeline.failures import explained  # noqa: PLC0415
        from queueyard.pipeline.warehouse import Warehouse  # noqa: PLC0415

        try:
            with explained():
                yield Warehouse(session, self.home, lock)
        finally:
            session.stop()


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, and a `Call` as its first argument."""

    def run(
        *args: Any,
        yard_folder: str | None,
        home: str | None,
        master: str | None,
        remote: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        call = Call(yard_folder=yard_folder, home=home, master=master, remote=remote, as_json=as_json)
        function(call, *args, **options)

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_COMMON):
        wrapped = option(wrapped)
    return wrapped


@click.group(
    cls=Script,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "queueyard pipeline run",
        "queueyard pipeline status",
        "queueyard pipeline query 'SELECT * FROM summary ORDER BY day DESC'",
    ),
)
def main() -> None:
    """The history of every system as tables, on Spark."""


@main.command(
    epilog=examples(
        "queueyard pipeline run", "queueyard pipeline run --watch", "queueyard pipeline run --master 'local[2]' --json"
    )
)
@click.option("-w", "--watch", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@common
def run(call: Call, watch: bool) -> None:
    """Read what is new in every place of the yard, bring all tables up to date, and stop.

    With --watch, new records go to bronze as soon as they are seen, and the tables below follow as fast as Spark builds
    them.
    """
    if watch:
        _watch(call)
        return
    with call.warehouse(reads=True) as house:
        from queueyard.pipeline.run import run as run_pipeline  # noqa: PLC0415

        with call.out.progress("pipeline", 0) as bar:
            done = run_pipeline(house, call.yard.places, bar=bar)
    told = {"batches": len(done.batches), "rows": done.rows, "quarantined": done.quarantined, "home": call.home}
    if call.as_json:
        call.out.data(told)
    elif done.batches:
        call.out.text(f"{done.rows} rows read, {done.quarantined} of them quarantined; tables in {call.home}")
    else:
        call.out.text(f"nothing new; tables in {call.home}")


def _watch(call: Call) -> None:
    """One line per batch, as it is committed."""
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415

    lifecycle = Lifecycle()
    with lifecycle.on_signals(), call.warehouse(reads=True) as house:
        from queueyard.pipeline.watch import watch  # noqa: PLC0415

        def told(batch: Ingested) -> None:
            if call.as_json:
                call.out.data({"batch": batch.batch, "rows": batch.rows, "quarantined": batch.quarantined})
            else:
                call.out.text(f"batch {batch.batch}: {batch.rows} rows, {batch.quarantined} of them quarantined")

        def built(batch: int) -> None:
            if call.as_json:
                call.out.data({"gold": batch})
            else:
                call.out.text(f"all tables have batch {batch}")

        call.out.note("watching; Ctrl-C ends it")
        watch(house, call.yard.places, lifecycle, told=told, built=built)


@main.command(
    epilog=examples(
        "queueyard pipeline backfill --from 2026-11-01", "queueyard pipeline backfill --from 2026-11-01 --to 2026-11-07"
    )
)
@click.option("--from", "first", type=click.DateTime(["%Y-%m-%d"]), required=True, help="The first day (UTC).")
@click.option("--to", "last", type=click.DateTime(["%Y-%m-%d"]), help="The last day; default: all days since.")
@common
def backfill(call: Call, first: datetime, last: datetime | None) -> None:
    """Make the events of some days anew from the raw lines, and everything that follows from them.

    For tables that an older version made: the raw lines are all there, so nothing is asked of the sources.
    """
    days = (str(first.date()), str(last.date()) if last else "9999-12-31")
    if days[0] > days[1]:
        raise UsageFault(f"{days[0]} is after {days[1]}", hint="Give --from the earlier day.")
    with call.warehouse() as house:
        from queueyard.pipeline.run import backfill as backfill_days  # noqa: PLC0415

        with call.out.progress("backfill", 0) as bar:
            remade = backfill_days(house, first=days[0], last=days[1], bar=bar)
    if call.as_json:
        call.out.data({"days": remade})
    else:
        call.out.text(f"{len(remade)} days made anew")


@main.command(epilog=examples("queueyard pipeline compact", "queueyard pipeline vacuum"))
@common
def compact(call: Call) -> None:
    """Put together what many small batches have left: fewer files and rows, the same tables."""
    with call.warehouse() as house:
        from queueyard.pipeline.compaction import compact as compact_tables  # noqa: PLC0415
        from queueyard.pipeline.run import alone  # noqa: PLC0415

        with alone(house):
            gone = compact_tables(house)
    if call.as_json:
        call.out.data(gone)
    else:
        call.out.text(f"{sum(gone.values())} files fewer; the old ones stay until: queueyard pipeline vacuum")


@main.command(epilog=examples("queueyard pipeline status", "queueyard pipeline status --json"))
@common
def status(call: Call) -> None:
    """Say how far each source was read, and what is in each table. Starts no Spark.

    Servers have five seconds to answer; of one that does not, that is said.
    """
    import msgspec  # noqa: PLC0415

    from queueyard.pipeline.names import TABLE_NAMES  # noqa: PLC0415
    from queueyard.pipeline.status import status as status_of  # noqa: PLC0415

    found = status_of(call.home, TABLE_NAMES, call.yard.places, environment=os.environ)
    behind = {"behind_bytes": found.behind_bytes, "behind_entries": found.behind_entries}
    if call.as_json:
        call.out.data({**msgspec.to_builtins(found), **behind})
        return
    _print_status(call.out, found)


def _print_status(out: Output, found: Status) -> None:
    out.table(
        ("TABLE", "ROWS", "BATCH", "COMMITTED"),
        [(one.name, one.rows, one.batch if one.batch >= 0 else None, one.committed_at) for one in found.tables],
    )
    if found.sources:
        out.text()
        out.table(
            ("SOURCE", "READ BYTES", "BEHIND BYTES", "FILE OR PLACE"),
            [(one.stream, one.read_bytes, one.behind_bytes, one.path) for one in found.sources],
        )
    if found.servers:
        out.text()
        # Rare, and bad news: the column is there to be noticed.
        lost = ("LOST",) if any(one.lost_entries for one in found.servers) else ()
        out.table(
            ("SOURCE", "QUEUE OR SPACE", "READ UP TO", "BEHIND ENTRIES", *lost, "SERVER"),
            [
                (one.stream, one.name, one.read, one.behind_entries, *(one.lost_entries for _ in lost), one.place)
                for one in found.servers
            ],
        )
    if found.violations:
        out.text()
        out.table(
            ("BROKEN RULE", "TABLE", "ROWS", "BATCH", "FOR EXAMPLE"),
            [(one.rule, one.table, one.rows, one.batch, one.examples[0]) for one in found.violations],
        )
    for one in found.servers:
        if one.fault:
            out.note(one.fault)
    new = {"bytes": found.behind_bytes, "entries": found.behind_entries}
    told = " and ".join(f"{count} {unit}" for unit, count in new.items() if count)
    if told:
        out.note(f"{told} are new; to read them: queueyard pipeline run")


@main.command(epilog=examples("queueyard pipeline explain", "queueyard pipeline explain fairness"))
@click.argument("metric", required=False)
@json_option
def explain(metric: str | None, as_json: bool) -> None:
    """Say what a gold table means; without a name, all of them in short."""
    from queueyard.pipeline.errors import BadQuery  # noqa: PLC0415
    from queueyard.pipeline.gold import METRICS  # noqa: PLC0415

    wanted = [one for one in METRICS if metric in {None, one.name}]
    if not wanted:
        raise BadQuery(f"there is no metric {metric}", hint="All of them: queueyard pipeline explain")
    told = [{"name": one.name, "definition": one.definition, "columns": one.spec.schema.fieldNames()} for one in wanted]
    out = Output(as_json=as_json)
    if as_json:
        out.data(told)
        return
    for one in told:
        out.text(out.style(str(one["name"]), "bold"))
        out.text(f"  {one['definition']}")
        out.text(f"  columns: {', '.join(one['columns'])}")


@main.command(epilog=examples("queueyard pipeline query 'SELECT kind, count(*) FROM events GROUP BY kind'"))
@click.argument("sql")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many rows.")
@common
def query(call: Call, sql: str, limit: int) -> None:
    """Ask a question in SQL. Silver views and gold tables are there by their names."""
    with call.warehouse(changes=False) as house:
        from queueyard.pipeline.queries import ask  # noqa: PLC0415

        columns, rows = ask(house, sql, limit=limit)
    if call.as_json:
        call.out.data([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        call.out.table([column.upper() for column in columns], rows)


@main.command(epilog=examples("queueyard pipeline vacuum", "queueyard pipeline vacuum --keep-hours 24"))
@click.option("--keep-hours", type=click.IntRange(min=0), default=168, show_default=True, help="Older files may go.")
@common
def vacuum(call: Call, keep_hours: int) -> None:
    """Delete files that no version of a table needs any more. Starts no Spark; refused while a run is at work."""
    from queueyard.pipeline.names import TABLE_NAMES  # noqa: PLC0415
    from queueyard.pipeline.retention import vacuum as vacuum_tables  # noqa: PLC0415

    gone = vacuum_tables(call.home, TABLE_NAMES, hours=keep_hours)
    if call.as_json:
        call.out.data(gone)
    else:
        call.out.text(f"{sum(gone.values())} files deleted")


@main.command(epilog=examples("queueyard pipeline report", "queueyard pipeline report --to ~/yard-report"))
@click.option("--to", "folder", type=click.Path(), metavar="DIR", help="Where to; default: report/ beside the tables.")
@common
def report(call: Call, folder: str | None) -> None:
    """Write one HTML page with a chart and a table per metric, and the charts as PNG. Starts no Spark."""
    import msgspec  # noqa: PLC0415

    from queueyard.pipeline.report import write_report  # noqa: PLC0415
    from queueyard.pipeline.settings import folder_of  # noqa: PLC0415

    written = write_report(call.home, Path(folder) if folder else (folder_of(call.home) or Path.cwd()) / "report")
    if call.as_json:
        call.out.data(msgspec.to_builtins(written))
    else:
        call.out.text(written.page)


@main.command(epilog=examples("queueyard pipeline prepare"))
@json_option
def prepare(as_json: bool) -> None:
    """Make every later start of Spark on this machine some seconds shorter.

    What Java makes of Spark's classes is kept in the user's cache, some 200 MB. It is done once for each version of
    Spark and of Java, takes about a minute, and can be undone by deleting the file.
    """
    import msgspec  # noqa: PLC0415

    from queueyard.pipeline.session import require_packages  # noqa: PLC0415
    from queueyard.pipeline.settings import load  # noqa: PLC0415

    require_packages()
    out = Output(as_json=as_json)
    out.note("starting Spark ...")
    from queueyard.pipeline.failures import explained  # noqa: PLC0415
    from queueyard.pipeline.prepare import prepare as prepare_spark  # noqa: PLC0415

    with out.progress("prepare", 1) as bar, explained():
        done = prepare_spark(memory=load(os.environ).values.memory, bar=bar)
    if as_json:
        out.data(msgspec.to_builtins(done))
    else:
        out.text(f"{done.bytes >> 20} MB in {done.path}; to undo it, delete that file")


@main.command(
    epilog=examples("queueyard pipeline generate ./play --events 100000", "queueyard pipeline run --yard ./play")
)
@click.argument("folder", type=click.Path())
@click.option("--events", type=click.IntRange(min=1), default=100_000, show_default=True, help="How many lines.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same histories.")
@json_option
def generate(folder: str, events: int, seed: int, as_json: bool) -> None:
    """Write made-up histories of all five systems in their own formats: for trying out, tests and measuring.

    The folder is a yard of all but panqueue, whose entries only a server can hold.
    """
    import msgspec  # noqa: PLC0415

    from queueyard.pipeline.generator import generate as generate_histories  # noqa: PLC0415
    from queueyard.yard.places import add, place_at  # noqa: PLC0415

    made = generate_histories(Path(folder), events=events, seed=seed, workers=os.cpu_count() or 1)
    root = Path(folder).resolve()
    for system, name in made.places:
        add(root, place_at(system, name, cwd=root))
    out = Output(as_json=as_json)
    if as_json:
        out.data(msgspec.to_builtins(made, enc_hook=str))
    else:
        out.table(
            ("STREAM", "LINES", "SOUND", "CORRUPT", "DUPLICATES"),
            [(one.stream, one.lines, one.sound, one.corrupt, one.duplicates) for one in made.streams],
        )
