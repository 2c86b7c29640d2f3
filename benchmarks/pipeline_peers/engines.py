"""The latest state of every record, field by field, by other engines, in an environment of theirs: ENGINE FILE OUT.

Last value that is not null, first `created_at`; the result goes to a file. Prints the seconds that it took, without
starting Python and importing the engine. `duckdb-gold` counts the result as well; `differ` tells two results apart.
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


def with_duckdb(source: str, target: str) -> None:
    import duckdb  # type: ignore[import-not-found]  # noqa: PLC0415  each engine is imported alone

    latest = ", ".join(f"arg_max({name}, seq) FILTER ({name} IS NOT NULL) AS {name}" for name in LATEST)
    duckdb.sql(
        f"COPY (SELECT id, arg_min(created_at, seq) FILTER (created_at IS NOT NULL) AS created_at, {latest}"
        f" FROM read_json('{source}', format = 'newline_delimited', columns = {COLUMNS}) GROUP BY id)"
        f" TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
    )


def with_duckdb_to_gold(source: str, target: str) -> None:
    """All of it anew, and one small table on top: less than our gold is."""
    import duckdb  # noqa: PLC0415

    with_duckdb(source, target)
    duckdb.sql(f"SELECT agent, status, count(*) FROM read_parquet('{target}') GROUP BY ALL").fetchall()


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
    both_ways = f"({first} EXCEPT ALL {second}) UNION ALL ({second} EXCEPT ALL {first})"
    found: int = duckdb.sql(f"SELECT count(*) FROM ({both_ways})").fetchall()[0][0]
    return found


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


def main() -> None:
    engine, source, target = sys.argv[1:]
    if engine == "differ":
        print(json.dumps({"rows": differ(source, target)}))
        return
    # Whatever an engine does when it is imported is not what is measured.
    __import__({"python": "orjson", "duckdb-gold": "duckdb"}.get(engine, engine))
    start = time.perf_counter()
    ENGINES[engine](source, target)
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
