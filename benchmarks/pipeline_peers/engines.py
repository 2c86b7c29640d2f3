"""The latest state of every record, field by field, by other engines, in an environment of theirs: ENGINE FILE OUT.

Last value that is not null, first `created_at`; the result goes to a file. Prints the seconds that it took, without
starting Python and importing the engine. `duckdb-gold` makes of the same lines also every gold table that our pipeline
fills from them; its OUT is a folder, with one file per table.

`differ ONE OTHER` compares two results, `differ-gold HOME FOLDER` our gold tables with those of `duckdb-gold`. Both
print how many rows stand in one of the two only.
"""

from __future__ import annotations

import json
from pathlib import Path
import sys
import time
from typing import Any

FIELDS = ("expires_at", "released_at", "renewed_at", "pattern", "agent", "droid", "issue_id", "status", "reason")
COLUMNS = dict.fromkeys(("id", "created_at", *FIELDS), "VARCHAR") | {"exclusive": "BOOLEAN", "seq": "BIGINT"}
LATEST = (*FIELDS, "exclusive")
#: in the order of the table
STATE = ("id", "created_at", *LATEST)
_TIMES = ("created_at", "expires_at", "renewed_at", "released_at")
_TO_PARQUET = "(FORMAT parquet, COMPRESSION zstd)"

# The tables as gold/*.py define them, for lines as lines.py writes them: all times are UTC, none is missing, and no
# event is told twice. There is one source, so no table names it.

#: what each line does: it begins or renews a reservation, and it may end it
_STEPS = """
    WITH stood AS (
        SELECT
            id,
            lag(seq) OVER upto IS NULL AS is_first,
            first_value(created_at IGNORE NULLS) OVER upto AS created_at,
            last_value(expires_at IGNORE NULLS) OVER upto AS expires_at,
            last_value(renewed_at IGNORE NULLS) OVER upto AS renewed_at,
            last_value(released_at IGNORE NULLS) OVER upto AS released_at,
            last_value(status IGNORE NULLS) OVER upto AS status,
            last_value(expires_at IGNORE NULLS) OVER before AS expires_at_before,
            last_value(status IGNORE NULLS) OVER before AS status_before
        FROM timed
        WINDOW
            upto AS (PARTITION BY id ORDER BY seq ROWS UNBOUNDED PRECEDING),
            before AS (PARTITION BY id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    )
    SELECT
        id,
        coalesce(status IN ('released', 'expired'), false) AS is_over,
        NOT is_over AND expires_at > expires_at_before AS is_longer,
        CASE WHEN is_first THEN 'started' WHEN is_longer THEN 'renewed' END AS hold,
        if(is_first, created_at, coalesce(renewed_at, created_at)) AS hold_at,
        CASE WHEN is_over AND status IS DISTINCT FROM status_before THEN status END AS ending,
        coalesce(released_at, expires_at) AS ending_at
    FROM stood
"""
_EVENTS = """
    SELECT id AS item, hold AS kind, hold_at AS happened_at FROM steps WHERE hold IS NOT NULL
    UNION ALL
    SELECT id, ending, ending_at FROM steps WHERE ending IS NOT NULL
"""
#: all that two of the tables count, so that the events are grouped once
_DAYS = """
    SELECT
        happened_at::DATE AS day,
        count(DISTINCT item) AS items,
        count(*) AS events,
        count(*) FILTER (kind = 'started') AS started,
        count(*) FILTER (kind = 'released') AS released
    FROM events
    GROUP BY day
"""
_PATTERNS = r"""
    SELECT
        written,
        regexp_replace(regexp_replace(written, '^(?:\./+)+', ''), '/+$', '/**') AS pattern,
        regexp_extract(pattern, '^[^*?\[{\\]*') AS fixed,
        length(fixed) < length(pattern) AS has_wildcard,
        if(has_wildcard, fixed, fixed || '/') AS path
    FROM (SELECT DISTINCT pattern AS written FROM reservations WHERE pattern IS NOT NULL)
"""
_HELD = """
    SELECT
        id,
        coalesce(nullif(agent, ''), droid) AS owner,
        patterns.pattern,
        coalesce(exclusive, true) AS is_exclusive,
        TRY_CAST(created_at AS TIMESTAMP) AS start_at,
        least(TRY_CAST(released_at AS TIMESTAMP), TRY_CAST(expires_at AS TIMESTAMP)) AS end_at
    FROM reservations JOIN patterns ON reservations.pattern = written
    WHERE start_at < end_at AND owner IS NOT NULL
"""
_GOLD = {
    "throughput": """
        WITH minutes AS (
            SELECT date_trunc('minute', happened_at) AS minute_at, count(*) AS started
            FROM events
            WHERE kind = 'started'
            GROUP BY minute_at
        )
        SELECT
            grain,
            date_trunc(grain, minute_at) AT TIME ZONE 'UTC' AS bucket_at,
            'queen' AS system,
            'reservations' AS queue,
            0::BIGINT AS queued,
            sum(started)::BIGINT AS started,
            0::BIGINT AS succeeded,
            0::BIGINT AS failed,
            0::BIGINT AS conflicted,
            0::BIGINT AS canceled
        FROM minutes, (VALUES ('minute'), ('hour'), ('day')) AS grains(grain)
        GROUP BY grain, bucket_at
    """,
    "retries": """
        SELECT
            'queen' AS system,
            'reservations' AS queue,
            day,
            started,
            0::BIGINT AS retried,
            0::BIGINT AS stalled,
            released,
            0::BIGINT AS retried_items,
            1::BIGINT AS highest_attempt,
            CASE WHEN started > 0 THEN 0::DOUBLE END AS retry_rate,
            CASE WHEN started > 0 THEN 0::DOUBLE END AS stall_rate
        FROM days
        WHERE started + released > 0
    """,
    # Hour by hour, as ours: each hour of a holder with the first hour of a waiter. Without MATERIALIZED, DuckDB joins
    # by the hour alone and by patterns afterwards, which takes fifty times as long.
    "contention": """
        WITH
            meetings AS (
                SELECT DISTINCT holder.pattern AS holder_pattern, waiter.pattern AS waiter_pattern
                FROM patterns AS holder, patterns AS waiter
                WHERE holder.pattern = waiter.pattern
                    OR (holder.has_wildcard AND starts_with(waiter.path, holder.fixed))
                    OR (waiter.has_wildcard AND starts_with(holder.path, waiter.fixed))
            ),
            holders AS MATERIALIZED (
                SELECT
                    held.*,
                    waiter_pattern,
                    unnest(
                        generate_series(
                            date_trunc('hour', start_at), least(end_at, start_at + INTERVAL 31 DAY), INTERVAL 1 HOUR
                        )
                    ) AS hour_at
                FROM held JOIN meetings ON pattern = holder_pattern
            ),
            waiters AS (SELECT *, date_trunc('hour', start_at) AS hour_at FROM held)
        SELECT
            waiter.start_at::DATE AS day,
            holder.owner AS holder,
            holder.pattern AS holder_pattern,
            waiter.owner AS waiter,
            waiter.pattern AS waiter_pattern,
            count(*) AS overlaps,
            count(*) FILTER (holder.is_exclusive AND waiter.is_exclusive) AS blocking_overlaps,
            sum(epoch_us(least(holder.end_at, waiter.end_at)) - epoch_us(waiter.start_at)) / 1e6 AS overlap_s
        FROM holders AS holder
            JOIN waiters AS waiter ON waiter.pattern = holder.waiter_pattern AND waiter.hour_at = holder.hour_at
        WHERE holder.owner <> waiter.owner
            AND (holder.start_at, holder.id) < (waiter.start_at, waiter.id)
            AND waiter.start_at < holder.end_at
            AND (holder.is_exclusive OR waiter.is_exclusive)
        GROUP BY ALL
    """,
    "summary": """
        SELECT
            'queen' AS system,
            day,
            1::BIGINT AS sources,
            1::BIGINT AS queues,
            items,
            events,
            0::BIGINT AS queued,
            started,
            0::BIGINT AS succeeded,
            0::BIGINT AS failed,
            0::BIGINT AS conflicted,
            0::BIGINT AS canceled,
            0::BIGINT AS retried,
            0::BIGINT AS stalled,
            NULL::DOUBLE AS success_rate,
            NULL::DOUBLE AS wait_p50_s,
            NULL::DOUBLE AS wait_p95_s,
            NULL::DOUBLE AS run_p50_s,
            NULL::DOUBLE AS run_p95_s,
            true AS is_exact
        FROM days
    """,
}


def with_duckdb(source: str, target: str) -> None:
    import duckdb  # type: ignore[import-not-found]  # noqa: PLC0415  each engine is imported alone

    duckdb.sql(f"COPY ({_folded(_parsed(source))}) TO '{target}' {_TO_PARQUET}")


def with_duckdb_to_gold(source: str, target: str) -> None:
    """All of it anew. The lines are parsed once; no table of events is written, which ours is."""
    import duckdb  # noqa: PLC0415

    Path(target).mkdir(parents=True, exist_ok=True)
    times = ", ".join(f"TRY_CAST({name} AS TIMESTAMP) AS {name}" for name in _TIMES)
    with duckdb.connect(config={"preserve_insertion_order": False}) as database:
        database.execute(f"CREATE TEMP TABLE lines AS FROM {_parsed(source)}")
        database.execute(f"COPY ({_folded('lines')}) TO '{target}/reservations.parquet' {_TO_PARQUET}")
        database.execute(f"CREATE TEMP VIEW reservations AS FROM '{target}/reservations.parquet'")
        database.execute(f"CREATE TEMP VIEW timed AS SELECT id, seq, status, {times} FROM lines")
        database.execute(f"CREATE TEMP TABLE steps AS {_STEPS}")
        database.execute(f"CREATE TEMP VIEW events AS {_EVENTS}")
        database.execute(f"CREATE TEMP TABLE days AS {_DAYS}")
        database.execute(f"CREATE TEMP TABLE patterns AS {_PATTERNS}")
        database.execute(f"CREATE TEMP TABLE held AS {_HELD}")
        for name, query in _GOLD.items():
            database.execute(f"COPY ({query}) TO '{target}/{name}.parquet' {_TO_PARQUET}")


def _parsed(source: str) -> str:
    return f"read_json('{source}', format = 'newline_delimited', columns = {COLUMNS})"


def _folded(lines: str) -> str:
    latest = ", ".join(f"arg_max({name}, seq) FILTER ({name} IS NOT NULL) AS {name}" for name in LATEST)
    first = "arg_min(created_at, seq) FILTER (created_at IS NOT NULL) AS created_at"
    return f"SELECT id, {first}, {latest} FROM {lines} GROUP BY id"


def with_polars(source: str, target: str) -> None:
    import polars as pl  # type: ignore[import-not-found]  # noqa: PLC0415

    schema = {name: pl.Boolean if kind == "BOOLEAN" else pl.String for name, kind in COLUMNS.items() if name != "seq"}
    # The rows of a group stay in the order of the file.
    first = pl.col("created_at").drop_nulls().first()
    latest = [pl.col(name).drop_nulls().last() for name in LATEST]
    lines = pl.scan_ndjson(source, schema=schema)
    lines.group_by("id").agg(first, *latest).select(STATE).sink_parquet(target, compression="zstd")


def with_python(source: str, target: str) -> None:
    import orjson  # type: ignore[import-not-found]  # noqa: PLC0415

    records: dict[str, dict[str, Any]] = {}
    with Path(source).open("rb") as lines:
        for line in lines:
            change = orjson.loads(line)
            known = records.setdefault(change["id"], change)
            if known is not change:
                created_at = known.get("created_at")
                known.update({name: value for name, value in change.items() if value is not None})
                if created_at is not None:
                    known["created_at"] = created_at
    with Path(target).open("wb") as out:
        out.writelines(orjson.dumps({name: one.get(name) for name in STATE}) + b"\n" for one in records.values())


def differ(one: str, other: str) -> int:
    """How many rows stand in one of the two results only."""
    import duckdb  # noqa: PLC0415

    first, second = (f"SELECT {', '.join(STATE)} FROM {_table(name)}" for name in (one, other))
    found: int = duckdb.sql(_count_apart(first, second)).fetchall()[0][0]
    return found


def differ_in_gold(home: str, folder: str) -> int:
    """The same, over all tables of `duckdb-gold`."""
    import duckdb  # noqa: PLC0415

    found = 0
    for name in _GOLD:
        # The folders of our files are named like columns, and are none.
        ours = duckdb.read_parquet(_files_that_count(Path(home) / "gold" / name), hive_partitioning=False)
        kinds = dict(zip(ours.columns, map(str, ours.types), strict=True))
        kinds.pop("source", None)
        # The last digits of a division may differ.
        columns = ", ".join(f'round("{one}", 6)' if kind == "DOUBLE" else f'"{one}"' for one, kind in kinds.items())
        theirs = f"SELECT {columns} FROM '{folder}/{name}.parquet'"
        found += duckdb.sql(_count_apart(f"SELECT {columns} FROM ours", theirs)).fetchall()[0][0]
    return found


def _count_apart(first: str, second: str) -> str:
    both_ways = f"({first} EXCEPT ALL {second}) UNION ALL ({second} EXCEPT ALL {first})"
    return f"SELECT count(*) FROM ({both_ways})"


def _files_that_count(table: Path) -> list[str]:
    """By the Delta log: what older commits wrote may still lie there. A bench commits too seldom for checkpoints."""
    paths: set[str] = set()
    for version in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text().splitlines()):
            if "add" in action:
                paths.add(action["add"]["path"])
            elif "remove" in action:
                paths.discard(action["remove"]["path"])
    return [str(table / path) for path in paths]


def _table(name: str) -> str:
    if Path(name).is_dir():
        return f"read_parquet('{name}/**/*.parquet')"
    if name.endswith(".parquet"):
        return f"read_parquet('{name}')"
    columns = {column: kind for column, kind in COLUMNS.items() if column in STATE}
    return f"read_json('{name}', format = 'newline_delimited', columns = {columns})"


ENGINES = {
    "duckdb": with_duckdb,
    "duckdb-gold": with_duckdb_to_gold,
    "polars": with_polars,
    "python": with_python,
}
COMPARISONS = {"differ": differ, "differ-gold": differ_in_gold}


def main() -> None:
    engine, source, target = sys.argv[1:]
    if engine in COMPARISONS:
        print(json.dumps({"rows": COMPARISONS[engine](source, target)}))
        return
    # Whatever an engine does when it is imported is not what is measured.
    __import__({"python": "orjson", "duckdb-gold": "duckdb"}.get(engine, engine))
    start = time.perf_counter()
    ENGINES[engine](source, target)
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
