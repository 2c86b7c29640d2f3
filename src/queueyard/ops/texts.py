"""Every text once: which of the texts that a batch brings are there already, and the numbers of all of them.

A text is found by its hash, and hashes come in no order. An index of many hashes that takes those of one batch at a
time has nearly as many pages written as it takes hashes, and each page is written whole: more bytes than the texts
themselves. So SQLite indexes some thousands of texts together, in order, and until then the writer has their hashes in
memory. What it lacks, after a start or because another process wrote, it reads from the texts: those behind the last
number that is indexed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from queueyard.ops.database import Connection, Database

_IN_ONE_QUESTION = 500


class Texts:
    """The texts as one writer knows them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: hash -> number of each text up to `_seen` that may not be indexed
        self._recent: dict[bytes, int] = {}
        self._seen = 0

    def keep(self, line: Connection, texts: Mapping[bytes, bytes]) -> dict[bytes, int]:
        """Store those of the texts, by their hashes, that are not there; the number of each. Within a transaction."""
        if self._database.indexed_together:
            return self._keep_in_bulk(line, texts)
        # In order, so that two writers that bring the same texts never wait for each other in a circle.
        line.run_many(
            "INSERT INTO blob (hash, content) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING", sorted(texts.items())
        )
        return _numbers(line, "blob", texts)

    def forget_recent(self) -> None:
        """Whoever rolls back a transaction calls this: what was kept within it is not there."""
        self._recent.clear()
        self._seen = 0

    def _keep_in_bulk(self, line: Connection, texts: Mapping[bytes, bytes]) -> dict[bytes, int]:
        indexed = self._catch_up(line)
        known = {hashed: self._recent[hashed] for hashed in texts if hashed in self._recent}
        known |= _numbers(line, "blob_hash", [hashed for hashed in texts if hashed not in known])
        unknown = (hashed for hashed in texts if hashed not in known)
        new = {hashed: number for number, hashed in enumerate(unknown, self._seen + 1)}
        line.run_many(
            "INSERT INTO blob (id, hash, content) VALUES (?, ?, ?)",
            ((number, hashed, texts[hashed]) for hashed, number in new.items()),
        )
        self._recent |= new
        self._seen += len(new)
        if self._seen - indexed >= self._database.indexed_together:
            line.run_many("INSERT OR IGNORE INTO blob_hash (hash, id) VALUES (?, ?)", sorted(self._recent.items()))
            line.rows("UPDATE meta SET value = ? WHERE name = 'indexed'", (str(self._seen),))
            self._recent.clear()
        return known | new

    def _catch_up(self, line: Connection) -> int:
        """Know every text that is not indexed; the last number that is."""
        [(indexed, last)] = line.rows(
            "SELECT CAST(value AS INTEGER), (SELECT MAX(id) FROM blob) FROM meta WHERE name = 'indexed'"
        )
        behind = max(indexed, self._seen)
        if (last or 0) > behind:
            rows = line.rows("SELECT hash, id FROM blob WHERE id > ?", (behind,))
            self._recent.update((bytes(hashed), number) for hashed, number in rows)
        self._seen = max(behind, last or 0)
        return int(indexed)


def _numbers(line: Connection, table: str, hashes: Collection[bytes]) -> dict[bytes, int]:
    wanted = sorted(hashes)
    found: dict[bytes, int] = {}
    for start in range(0, len(wanted), _IN_ONE_QUESTION):
        some = wanted[start : start + _IN_ONE_QUESTION]
        marks = ", ".join(["(?)"] * len(some))
        sql = f"SELECT hash, id FROM (VALUES {marks}) AS wanted CROSS JOIN {table} WHERE hash = column1"  # noqa: S608
        found.update((bytes(hashed), number) for hashed, number in line.rows(sql, some))
    return found
