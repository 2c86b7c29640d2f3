"""All tables that the pipeline must end with, by their names, and how to hold what was found against them.

for name, table in expected(folder, names).items():
    assert differences(rows_found[name], table) == []
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING, Any

from pipeline import oracle, oracle_gold, oracle_gold_records, oracle_records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pipeline.oracle import Names, Row

_QUEUE = ("system", "source", "queue")
_MOST_TOLD = 20


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The rows of one table. A found table may have more columns, and nothing is said of those."""

    #: what tells one row from the others
    key: tuple[str, ...]
    rows: list[Row]


def expected(folder: Path, names: Names | None = None) -> dict[str, Expected]:
    """Every table of silver and gold, as the views and tables of the pipeline are called."""
    names = names or oracle.names_of(folder)
    told = oracle.events(folder, names)
    tried = list(oracle.attempts(told).values())
    versions = list(oracle_records.file_versions(folder, names).values())
    records = {name: list(oracle_records.queen_records(folder, name, names).values()) for name in oracle.SHAPES}
    item = (*_QUEUE, "item")
    bucket = ("grain", "bucket_at", *_QUEUE)
    pair = ("source", "day", "holder", "holder_pattern", "waiter", "waiter_pattern")
    scope = (*_QUEUE, "measure", "scope", "group", "day")
    return {
        "silver/events": Expected(key=("id",), rows=[oracle.event_row(event) for event in told]),
        "silver/items": Expected(key=item, rows=list(oracle.items(told).values())),
        "silver/attempts": Expected(key=(*item, "attempt"), rows=tried),
        **{f"silver/{name}": Expected(key=("source", "id"), rows=rows) for name, rows in records.items()},
        "silver/file_versions": Expected(key=("source", "space", "seq"), rows=versions),
        "silver/files": Expected(key=("source", "space", "file"), rows=list(oracle_records.files(versions).values())),
        "gold/throughput": Expected(key=bucket, rows=oracle_gold.throughput(told)),
        "gold/durations": Expected(key=scope, rows=oracle_gold.durations(tried)),
        "gold/failures": Expected(key=(*_QUEUE, "day", "kind", "reason"), rows=oracle_gold.failures(told)),
        "gold/retries": Expected(key=(*_QUEUE, "day"), rows=oracle_gold.retries(told)),
        "gold/fairness": Expected(key=bucket, rows=oracle_gold.fairness(tried)),
        "gold/landing": Expected(key=("source", "queue", "day"), rows=oracle_gold.landing(told)),
        "gold/agents": Expected(
            key=("source", "agent"), rows=oracle_gold_records.agents(records["messages"], records["assignments"])
        ),
        "gold/contention": Expected(key=pair, rows=oracle_gold_records.contention(records["reservations"])),
        "gold/sync": Expected(key=("source", "space", "day"), rows=oracle_gold_records.sync(told, versions)),
        "gold/summary": Expected(key=("system", "day"), rows=oracle_gold.summary(told, tried)),
    }


def differences(found: Iterable[Row], table: Expected) -> list[str]:
    """What is missing, too much or different, in words; at most twenty of them.

    Numbers may differ in their last digits. Times must be aware, and `data` of an event an object or None.
    """
    told: list[str] = []
    there = _by_key(found, table, told)
    wanted = {_key(row, table): row for row in table.rows}
    told += [f"missing: {key}" for key in wanted.keys() - there.keys()]
    told += [f"too much: {key}" for key in there.keys() - wanted.keys()]
    for key in wanted.keys() & there.keys():
        told += [
            f"{key}: {column} is {there[key].get(column)!r} instead of {value!r}"
            for column, value in wanted[key].items()
            if not _is_same(there[key].get(column), value)
        ]
    return sorted(told)[:_MOST_TOLD]


def _by_key(found: Iterable[Row], table: Expected, told: list[str]) -> dict[tuple[Any, ...], Row]:
    rows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in found:
        rows[_key(row, table)].append(row)
    told += [f"{len(ones)} rows of {key}" for key, ones in rows.items() if len(ones) > 1]
    return {key: ones[0] for key, ones in rows.items()}


def _key(row: Row, table: Expected) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)


def _is_same(found: object, wanted: object) -> bool:
    if isinstance(found, float) and isinstance(wanted, float | int):
        return isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return found == wanted
