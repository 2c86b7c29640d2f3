"""How far the pipeline is: rows, broken rules and what each source still has. Needs no Spark and no Java."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.expectations import sentence_of
from queueyard.pipeline.lag import ServerState, servers
from queueyard.pipeline.sources import digests, looking, snapshot_files, spans
from queueyard.pipeline.sources.places import origins_of, snapshots_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from queueyard.yard.places import Place

_BRONZE = "bronze/lines"
_VIOLATIONS = "quality/violations"
_EVERYTHING_BYTES = 1 << 62


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """One table."""

    name: str
    rows: int
    #: the last batch that it has; -1 for none
    batch: int
    #: RFC 3339
    committed_at: str | None


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """One growing file, or all rewritten files of one format in a place."""

    stream: str
    #: the file, or the place
    path: str
    read_bytes: int
    #: whole lines, or whole files, that no batch has yet
    behind_bytes: int


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is broken."""

    table: str
    rule: str
    #: what that means, for people; empty for a rule of another version
    sentence: str
    #: rows that broke it when it was last found broken
    rows: int
    #: keys of the first and the last of them
    examples: list[str]
    #: the last batch of that check
    batch: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it."""

    home: str
    tables: list[TableState]
    sources: list[SourceState]
    servers: list[ServerState]
    violations: list[Violation]

    @property
    def behind_bytes(self) -> int:
        return sum(source.behind_bytes for source in self.sources)

    @property
    def behind_entries(self) -> int:
        """As far as servers say."""
        return sum(server.behind_entries or 0 for server in self.servers)


def status(home: str, names: Sequence[str], places: Sequence[Place], *, environment: Mapping[str, str]) -> Status:
    """What the logs of the tables say, against the files as they stand and what servers say.

    SourceFailed for a file or folder that cannot be read; a server that cannot be asked is only told.
    """
    note = DeltaLog(f"{home}/{_BRONZE}").note()
    return Status(
        home=home,
        tables=[_table(home, name) for name in names],
        sources=[
            *_growing(places, msgspec.convert(note.get("lines", {}), spans.Marks)),
            *_rewritten(places, msgspec.convert(note.get("snapshots", {}), digests.Marks)),
        ],
        servers=servers(places, note, environment=environment),
        violations=_violations(DeltaLog(f"{home}/{_VIOLATIONS}")),
    )


def _growing(places: Sequence[Place], marks: spans.Marks) -> list[SourceState]:
    origins = origins_of(places)
    files = looking.with_renamed(looking.look(origins), origins, marks)
    new, _ = spans.plan(marks, files, most_bytes=_EVERYTHING_BYTES)
    behind = {span.path: span.end - span.start for span in new}
    return [
        SourceState(
            stream=file.origin.stream,
            path=file.origin.path,
            read_bytes=file.end - behind.get(file.origin.path, 0),
            behind_bytes=behind.get(file.origin.path, 0),
        )
        for file in files
    ]


def _rewritten(places: Sequence[Place], marks: digests.Marks) -> list[SourceState]:
    """There may be a file per run, so they are added up."""
    looks = snapshot_files.look(snapshots_at(places))
    new, _ = digests.plan(marks, snapshot_files.opened(digests.suspects(marks, looks)))
    there: Counter[tuple[str, str]] = Counter()
    behind: Counter[tuple[str, str]] = Counter()
    for look in looks:
        there[look.origin.stream, look.origin.place] += look.size
    for one in new:
        behind[one.stream, one.place] += one.size
    return [
        SourceState(stream=stream, path=place, read_bytes=size - new_bytes, behind_bytes=new_bytes)
        for (stream, place), size in there.items()
        for new_bytes in [behind[stream, place]]
    ]


def _table(home: str, name: str) -> TableState:
    log = DeltaLog(f"{home}/{name}")
    return TableState(name=name, rows=log.rows(), batch=log.batch(), committed_at=log.committed_at())


def _violations(log: DeltaLog) -> list[Violation]:
    """Each broken rule by its newest check; one about a whole table only if the last check still found it."""
    last = log.batch()
    newest = {
        (row["table"], row["rule"]): row
        for row in sorted(log.read_rows(), key=lambda row: row["batch"])
        if row["batch"] == last or not row["is_whole"]
    }
    return [
        Violation(
            table=table,
            rule=rule,
            sentence=sentence_of(table, rule),
            rows=row["violations"],
            examples=row["examples"],
            batch=row["batch"],
        )
        for (table, rule), row in sorted(newest.items())
    ]
