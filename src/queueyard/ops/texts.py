"""Every text once: which of the texts that a batch brings are there already, and the numbers of all of them.

A text is found by its hash, and hashes come in no order. An index of many hashes that takes those of one batch at a
time has nearly as many pages written as it takes hashes, and each page is written whole: more bytes than the texts
themselves. So SQLite indexes some thousands of texts together, in order, and until then the writer has their hashes in
memory, in a table that nobody else sees and that is rolled back with the rest. What it lacks, after a start or because
another process wrote, it reads from the texts: those behind the last number that is indexed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from queueyard.ops.database import Connection, Database

_IN_ONE_QUESTION = 500


def keep(database: Database, line: Connection, texts: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """Store those of the texts, by their hashes, that are not there; the number of each. Within a transaction."""
    if database.indexed_together:
        return _keep_in_bulk(database, line, texts)
    # In order, so that two writers that bring the same texts never wait for each other in a circle.
    line.run_many("INSERT INTO blob (hash, content) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING", sorted(texts.items()))
    return _numbers(line, "blob", texts)


def _keep_in_bulk(database: Database, line: Connection, texts: Mapping[bytes, bytes]) -> dict[bytes, int]:
    indexed, last = _catch_up(line)
    known = _numbers(line, "blob_hash", texts) | _numbers(line, "recent", texts)
    new = {hashed: number for number, hashed in enumerate((one for one in texts if one not in known), last + 1)}
    line.run_many(
        "INSERT INTO blob (id, hash, content) VALUES (?, ?, ?)",
        ((number, hashed, texts[hashed]) for hashed, number in new.items()),
    )
    line.run_many("INSERT INTO recent (hash, id) VALUES (?, ?)", new.items())
    last += len(new)
    if last - indexed >= database.indexed_together:
        line.rows("INSERT OR IGNORE INTO blob_hash (hash, id) SELECT hash, id FROM recent ORDER BY hash")
        line.rows("DELETE FROM recent")
        line.rows("UPDATE meta SET value = ? WHERE name = 'indexed'", (str(last),))
    return known | new


def _catch_up(line: Connection) -> tuple[int, int]:
    """Know every text that is not indexed; the last number that is, and the last of all."""
    line.rows("CREATE TEMP TABLE IF NOT EXISTS recent (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE)")
    [(indexed, last, seen)] = line.rows(
        "SELECT CAST(value AS INTEGER), (SELECT MAX(id) FROM blob), (SELECT MAX(id) FROM recent) "
        "FROM meta WHERE name = 'indexed'"
    )
    behind = max(indexed, seen or 0)
    if (last or 0) > behind:
        line.rows("INSERT INTO recent (id, hash) SELECT id, hash FROM blob WHERE id > ?", (behind,))
    return indexed, max(indexed, last or 0)


def _numbers(line: Connection, table: str, hashes: Collection[bytes]) -> dict[bytes, int]:
    wanted = sorted(hashes)
    found: dict[bytes, int] = {}
    for start in range(0, len(wanted), _IN_ONE_QUESTION):
        some = wanted[start : start + _IN_ONE_QUESTION]
        marks = ", ".join(["(?)"] * len(some))
        sql = f"SELECT hash, id FROM (VALUES {marks}) AS wanted CROSS JOIN {table} WHERE hash = column1"  # noqa: S608
        found.update((bytes(hashed), number) for hashed, number in line.rows(sql, some))
    return found
