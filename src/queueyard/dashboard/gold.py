"""The gold tables, read through their Delta log and kept until the next commit. Needs no Spark and no Java.

A person looks at several charts of one table, and several people look: each table is read once per commit.
"""

from __future__ import annotations

import threading
from typing import Any

from queueyard.pipeline.delta import DeltaLog

Row = dict[str, Any]


class Gold:
    """The tables below one home. May be shared by threads."""

    def __init__(self, home: str) -> None:
        self.home = home
        self._guard = threading.Lock()
        self._known: dict[str, tuple[str, list[Row]]] = {}

    def rows(self, table: str) -> list[Row]:
        """Every row as last committed; none where the pipeline has not run. TableTooNew."""
        log = DeltaLog(f"{self.home}/gold/{table}")
        with self._guard:
            commit = log.committed_at()
            if commit is None:
                return []
            known = self._known.get(table)
            if known is None or known[0] != commit:
                self._known[table] = known = (commit, log.read_rows())
            return known[1]

    def committed_at(self) -> str | None:
        """When the pipeline last had something to say: RFC 3339, or None if it never ran."""
        return DeltaLog(f"{self.home}/gold/summary").committed_at()
