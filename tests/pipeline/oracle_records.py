"""What the pipeline must find of records: queen's three files folded, and the files of ops. Plain Python, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.oracle import SHAPES, Row, changes, names_of, queen_lines
from queueyard.kernel.clock import from_rfc3339
from queueyard.ops.records import FeedOp
from queueyard.queen.rules import fold

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pipeline.oracle import Names
    from queueyard.ops.records import Change
    from queueyard.queen.records import Raw


def folded(lines: Iterable[Raw]) -> dict[str, Raw]:
    """The record of each id, as queen itself makes it."""
    records: dict[str, Raw] = {}
    for line in lines:
        records[line["id"]] = fold(records.get(line["id"]), line)
    return records


def queen_records(folder: Path, name: str, names: Names | None = None) -> dict[str, Row]:
    """Rows of silver/messages, silver/assignments or silver/reservations, by id; fields that are not there are None."""
    source = (names or names_of(folder)).queen
    columns = SHAPES[name].__struct_encode_fields__
    return {
        identifier: {"source": source} | {column: record.get(column) for column in columns}
        for identifier, record in folded(queen_lines(folder, name)).items()
    }


def file_versions(folder: Path, names: Names | None = None) -> dict[tuple[str, int], Row]:
    """Rows of silver/file_versions, by space and number in the feed."""
    source = (names or names_of(folder)).ops
    return {(change.space, change.seq): _version(change, source) for change in changes(folder)}


def files(versions: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Rows of silver/files, by space and file: the newest version of each."""
    newest: dict[tuple[str, str], Row] = {}
    for version in sorted(versions, key=lambda version: version["seq"]):
        newest[version["space"], version["file"]] = version
    return {key: _file(version) for key, version in newest.items()}


def _version(change: Change, source: str) -> Row:
    return {
        "source": source,
        "space": change.space,
        "file": change.file_id,
        "version": change.version,
        "seq": change.seq,
        "op": str(change.op),
        "path": change.server_path,
        "previous_path": change.previous_path,
        "content_hash": change.content_hash,
        "bytes": change.size,
        "request": change.request_id,
        "actor": change.client_id or change.user_id,
        "at": from_rfc3339(change.accepted_at),
    }


def _file(version: Row) -> Row:
    kept = ("source", "space", "file", "version", "seq", "path", "content_hash", "bytes")
    return {name: version[name] for name in kept} | {
        "is_deleted": version["op"] == FeedOp.DELETE,
        "changed_at": version["at"],
    }
