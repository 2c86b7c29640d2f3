"""What may be wrong with queen's files, and the repair of each.

Looking changes nothing. A repair keeps what it takes away: lines that nobody can read go to `queen_archive/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD, read_lines, replace_file
from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.errors import CorruptFile, explaining
from queueyard.kernel.findings import Finding
from queueyard.queen.archive import rewrite
from queueyard.queen.idx_json import IDX_NAME, export, is_current
from queueyard.queen.ready import CLOSED
from queueyard.queen.records import (
    LONGEST_LINE_BYTES,
    Assignment,
    AssignmentStatus,
    Message,
    Reservation,
    decode,
    view_or_none,
)
from queueyard.queen.reservations import conflicts, glob_of
from queueyard.queen.rules import Clash, fold, owner_of, surplus_holders, with_owner
from queueyard.queen.store import ARCHIVE, ASSIGNMENTS, MESSAGES, RESERVATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.queen.index import MessageIndex
    from queueyard.queen.records import Raw
    from queueyard.queen.service import Queen

_KINDS = {MESSAGES: Message, ASSIGNMENTS: Assignment, RESERVATIONS: Reservation}
_ATTRIBUTE = ".beads/queen_*.jsonl merge=union"


def examine(queen: Queen, *, fix: bool = False) -> list[Finding]:
    """Everything that is wrong; with `fix`, what can be mended is mended."""
    found: list[Finding] = []
    for look in _LOOKS:
        for finding, mend in look(queen):
            if fix and mend is not None:
                mend()
                found.append(msgspec.structs.replace(finding, fixed=True))
            else:
                found.append(finding)
    return found


_Look = Iterator[tuple[Finding, Callable[[], object] | None]]


def _bad_lines(queen: Queen) -> _Look:
    for name in _KINDS:
        path = queen.home.beads / name
        bad = [(number, offset, why) for number, offset, why in _unreadable(path)]
        if not bad:
            continue
        number, offset, why = bad[0]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        finding = Finding(
            check="unreadable lines",
            problem=f"{path}: line {number} (byte {offset}): {why}{more}",
            advice=f"--fix moves them to {ARCHIVE}/",
            fixable=True,
        )
        yield finding, lambda path=path: _set_aside(queen, path)  # type: ignore[misc]


def _unreadable(path: Path) -> Iterator[tuple[int, int, str]]:
    with explaining("read", path):
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    offset = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                decode(line)
            except NOT_UNDERSTOOD as fault:
                yield number, offset, "torn last line" if number == len(lines) else str(fault)
        offset += len(line) + 1


def _set_aside(queen: Queen, path: Path) -> None:
    target = queen.home.beads / ARCHIVE / f"{path.stem}-unreadable.txt"
    with queen.store.locked():
        rewrite(path, target, lambda lines: [line for line in lines if not _is_readable(line)], queen.clock)


def _is_readable(line: bytes) -> bool:
    try:
        decode(line)
    except NOT_UNDERSTOOD:
        return not line.strip()
    return True


def _misfits(queen: Queen) -> _Look:
    """Records that another tool wrote with a value of the wrong type; what they say may be meant, so they stay."""
    for name, kind in _KINDS.items():
        path = queen.home.beads / name
        for line in read_lines(path, decode, on_bad=lambda _: None):
            try:
                msgspec.convert(fold(None, {"id": ""} | line.value), kind)
            except msgspec.ValidationError as fault:
                problem = f"{path}: line {line.number} (byte {line.offset}): {fault}"
                advice = f"Nobody can use that line. Correct it: $EDITOR {path}"
                yield Finding(check="misfits", problem=problem, advice=advice, fixable=False), None


def _long_lines(queen: Queen) -> _Look:
    for name in _KINDS:
        path = queen.home.beads / name
        with explaining("read", path):
            lines = path.read_bytes().split(b"\n") if path.exists() else []
        for number, line in enumerate(lines, 1):
            if len(line) > LONGEST_LINE_BYTES:
                problem = f"{path}: line {number} is {len(line)} bytes long; other tools stop reading there"
                advice = "Archive it once it is settled: queen archive --older-than 0s"
                yield Finding(check="long lines", problem=problem, advice=advice, fixable=False), None


def _double_holders(queen: Queen) -> _Look:
    queen.store.assignments.refresh()
    for one in surplus_holders(queen.store.assignments.all()):
        finding = Finding(
            check="double assignments",
            problem=f"{one.issue_id} is also active for {owner_of(one)} ({one.id})",
            advice="--fix releases it; the first one in the file stays",
            fixable=True,
        )
        raw = queen.store.assignments.raw(one.id) | with_owner(owner_of(one))
        raw |= {
            "status": str(AssignmentStatus.RELEASED),
            "updated_at": to_rfc3339(queen.clock.now()),
            "reason": "held by another agent first",
        }
        yield finding, lambda raw=raw: queen.store.append(ASSIGNMENTS, [raw], what="assignment")  # type: ignore[misc]


def _closed_issues(queen: Queen) -> _Look:
    issues = queen.store.issues() or {}
    queen.store.assignments.refresh()
    for one in queen.store.assignments.all():
        issue = issues.get(one.issue_id)
        if one.status is AssignmentStatus.ACTIVE and issue is not None and issue.status in CLOSED:
            problem = f"{one.issue_id} is {issue.status}, but {owner_of(one)} still holds it"
            advice = f"queen complete {one.issue_id} --agent {owner_of(one)}"
            yield Finding(check="closed issues", problem=problem, advice=advice, fixable=False), None


def _overlaps(queen: Queen) -> _Look:
    for overlap in conflicts(queen.book, queen.clock):
        if overlap.clash == Clash.BLOCKS:
            a, b = overlap.reservation_a, overlap.reservation_b
            problem = f"{owner_of(a)} and {owner_of(b)} both hold {overlap.example} exclusively"
            yield Finding(check="conflicts", problem=problem, advice=overlap.suggestion, fixable=False), None
    for one in queen.book.in_force(queen.clock.now()):
        if glob_of(one) is None:
            problem = f"{owner_of(one)} holds {one.pattern!r}, which can match nothing"
            advice = f"queen unreserve {one.id} --agent {owner_of(one)}"
            yield Finding(check="patterns", problem=problem, advice=advice, fixable=False), None


def _index(queen: Queen) -> _Look:
    """Compare the index with the file, message by message; misfits are told by their own check."""
    folded = {key: raw for key, raw in queen.store.every_message(lambda _: None).items() if view_or_none(raw, Message)}
    wrong = queen.store.messages(lambda index: _wrong_in(index, folded))
    if wrong:
        problem = f"the message index is wrong about {len(wrong)} messages, for example {wrong[0]}"
        finding = Finding(check="index", problem=problem, advice="--fix builds it anew", fixable=True)
        yield finding, queen.store.forget_index


def _wrong_in(index: MessageIndex, folded: Mapping[str, Raw]) -> list[str]:
    recipients = {raw["to"] for raw in folded.values() if raw.get("to")}
    inboxes = {agent: {raw["id"] for raw in index.received_by(agent)} for agent in recipients}
    return [
        identifier
        for identifier, raw in folded.items()
        if index.get(identifier) != raw or (raw.get("to") and identifier not in inboxes[raw["to"]])
    ]


def _idx_json(queen: Queen) -> _Look:
    path = queen.home.beads / IDX_NAME
    if path.exists() and not _fits(queen):
        problem = f"{path} does not fit the message file"
        finding = Finding(check="exported index", problem=problem, advice="--fix writes it anew", fixable=True)
        yield finding, lambda: export(queen.store)


def _fits(queen: Queen) -> bool:
    try:
        return is_current(queen.store)
    except CorruptFile:
        return False


def _attributes(queen: Queen) -> _Look:
    """Without merge=union, git makes a conflict of two branches that both appended."""
    path = queen.home.root / ".gitattributes"
    if not (queen.home.root / ".git").exists():
        return
    with explaining("read", path):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    if not any("merge=union" in words[1:] and "queen_" in words[0] for words in lines if words):
        finding = Finding(
            check="git attributes",
            problem=f"{path} does not say merge=union for queen's files, so git will make conflicts of them",
            advice=f"--fix adds: {_ATTRIBUTE}",
            fixable=True,
        )
        ended = text if not text or text.endswith("\n") else text + "\n"
        yield finding, lambda: replace_file(path, f"{ended}{_ATTRIBUTE}\n".encode())


_LOOKS = (
    _bad_lines,
    _misfits,
    _long_lines,
    _double_holders,
    _closed_issues,
    _overlaps,
    _index,
    _idx_json,
    _attributes,
)
