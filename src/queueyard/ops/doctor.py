"""What may be wrong with the files of the client and with the books of the server, and the repair of each.

Looking changes nothing. A repair keeps what it takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.errors import CorruptFile, QueueyardError, explaining
from queueyard.kernel.findings import Finding
from queueyard.ops import schema
from queueyard.ops.errors import CorruptBatch, LedgerFailed
from queueyard.ops.home import PRIVATE_FILE, PRIVATE_FOLDER
from queueyard.ops.store import QUARANTINE, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.ops.ledger import Ledger
    from queueyard.ops.records import DeadLetter
    from queueyard.ops.service import Ops


_Look = Iterator[tuple[Finding, Callable[[], object] | None]]


def examine(ops: Ops, *, fix: bool = False) -> list[Finding]:
    """Everything that is wrong with one scope; with `fix`, what can be mended is mended."""
    return _mended(
        [look(ops) for look in (_modes, _manifests, _batches, _documents, _leftovers, _letters, _server)], fix=fix
    )


def examine_ledger(ledger: Ledger) -> list[Finding]:
    """Everything that is wrong with the books of a server. Reads all of them, so it takes a while."""
    return _mended([look(ledger) for look in (_integrity, _version, _density, _texts, _progress)], fix=False)


def _mended(looks: list[_Look], *, fix: bool) -> list[Finding]:
    found: list[Finding] = []
    for look in looks:
        for finding, mend in look:
            if fix and mend is not None:
                mend()
                found.append(msgspec.structs.replace(finding, fixed=True))
            else:
                found.append(finding)
    return found


# --- the client ------------------------------------------------------------------------------------------------------


def _modes(ops: Ops) -> _Look:
    for path in [ops.queue.folder, *sorted(ops.queue.folder.rglob("*"))]:
        right = PRIVATE_FOLDER if path.is_dir() else PRIVATE_FILE
        if path.lstat().st_mode & 0o077:
            problem = f"others may look into {path}"
            finding = Finding(check="modes", problem=problem, advice="--fix closes it", fixable=True)
            yield finding, lambda path=path, right=right: path.chmod(right)  # type: ignore[misc]


def _manifests(ops: Ops) -> _Look:
    for path in ops.queue.manifest_paths():
        try:
            read_manifest(path)
        except CorruptFile as fault:
            finding = Finding(
                check="manifests",
                problem=str(fault),
                advice=f"--fix moves it to {QUARANTINE}/; its batches are planned again by the next push",
                fixable=True,
            )
            yield finding, lambda path=path: _set_aside(ops, path)  # type: ignore[misc]


def _set_aside(ops: Ops, path: Path) -> None:
    target = ops.queue.folder / QUARANTINE
    with explaining("set aside", path):
        target.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        (target / path.name).write_bytes(path.read_bytes())
        (target / path.name).chmod(PRIVATE_FILE)
        path.unlink()


def _batches(ops: Ops) -> _Look:
    try:
        manifests = ops.queue.requests()
    except CorruptFile:
        return
    for manifest in manifests:
        for index in ops.queue.pending(manifest):
            try:
                ops.queue.read(manifest, index)
            except CorruptBatch as fault:
                advice = "The next push sets it aside and goes on: jolli-ops resume"
                yield Finding(check="batches", problem=str(fault), advice=advice, fixable=False), None


def _documents(ops: Ops) -> _Look:
    for read in (ops.queue.workspace, ops.queue.coming, ops.queue.dead_letters):
        try:
            read()
        except CorruptFile as fault:
            yield Finding(check="documents", problem=str(fault), advice=fault.hint or "", fixable=False), None


def _leftovers(ops: Ops) -> _Look:
    kept = sorted((ops.queue.folder / QUARANTINE).glob("*"))
    if kept:
        problem = f"{len(kept)} files were set aside in {kept[0].parent}, for example {kept[0].name}"
        yield (
            Finding(check="quarantine", problem=problem, advice=f"Look at them, then: rm {kept[0]}", fixable=False),
            None,
        )


def _letters(ops: Ops) -> _Look:
    letters: list[DeadLetter] = []
    with suppress(CorruptFile):
        letters = ops.queue.dead_letters()
    if letters:
        problem = f"{len(letters)} ops could not be sent, for example {letters[0].op.server_path}: {letters[0].reason}"
        advice = "Decide: jolli-ops dead list, then dead retry or dead drop"
        yield Finding(check="dead letters", problem=problem, advice=advice, fixable=False), None


def _server(ops: Ops) -> _Look:
    try:
        with ops.asking(retry_for_s=0) as asking:
            reply, _ = asking.ask("GET", "/v1/sync/limits")
    except QueueyardError as fault:
        yield Finding(check="server", problem=str(fault), advice=fault.hint or "", fixable=False), None
        return
    if reply.status != 200:
        problem = f"{ops.scope.server} answers {reply.status} ({reply.code})"
        yield Finding(check="server", problem=problem, advice="Check token, space and address.", fixable=False), None


# --- the server ------------------------------------------------------------------------------------------------------


def _integrity(ledger: Ledger) -> _Look:
    if not ledger.database.groups_commits:
        return  # PostgreSQL looks after itself
    try:
        rows = ledger.line.rows("PRAGMA integrity_check")
    except LedgerFailed as fault:
        rows = [(str(fault),)]
    for (told,) in rows:
        if told != "ok":
            advice = "Stop the server and restore the last backup."
            yield Finding(check="integrity", problem=str(told), advice=advice, fixable=False), None


def _version(ledger: Ledger) -> _Look:
    """LedgerFailed if the rest cannot even be asked for."""
    schema.check(ledger.database, ledger.line)
    yield from ()


def _density(ledger: Ledger) -> _Look:
    """The feed and the audit stream have no gaps: so many entries as the last number says."""
    for table, column in (("change", "seq"), ("audit", "audit_seq")):
        rows = ledger.line.rows(
            f"SELECT slug, {column}, (SELECT COUNT(*) FROM {table} WHERE space_id = id AND seq BETWEEN 1 AND {column}) "  # noqa: S608
            "FROM space"
        )
        for slug, head, count in rows:
            if head != count:
                problem = f"space {slug}: {table} has {count} entries, its last number is {head}"
                yield Finding(check="density", problem=problem, advice="Restore the last backup.", fixable=False), None


def _texts(ledger: Ledger) -> _Look:
    [(missing,)] = ledger.line.rows(
        "SELECT COUNT(*) FROM change WHERE hash IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM blob WHERE blob.id = change.blob_id AND blob.hash = change.hash)"
    )
    if missing:
        problem = f"{missing} versions have lost their text"
        yield Finding(check="texts", problem=problem, advice="Restore the last backup.", fixable=False), None


def _progress(ledger: Ledger) -> _Look:
    """As many answered batches as each request says."""
    rows = ledger.line.rows(
        "SELECT request_id, done, (SELECT COUNT(*) FROM batch WHERE batch.space_id = request.space_id "
        "AND batch.request_id = request.request_id) AS answered FROM request"
    )
    for request_id, done, answered in rows:
        if done != answered:
            problem = f"request {request_id} is at batch {done}, and {answered} are answered"
            yield Finding(check="progress", problem=problem, advice="Restore the last backup.", fixable=False), None
