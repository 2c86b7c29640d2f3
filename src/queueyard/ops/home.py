"""Where the client keeps its files: `~/.jolli/ops/`, one folder per scope.

A scope is a server, a space on it and a folder that is kept in step with it. Two of them never share a file. Batch
files hold the text of documents, so the folders are the user's alone.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import FILES, Files, read_document, replace_file
from queueyard.kernel.errors import explaining
from queueyard.ops.records import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
SCOPE_NAME = "scope.json"


def jolli_home(environment: Mapping[str, str]) -> Path:
    """`JOLLI_HOME`, else `~/.jolli`."""
    named = environment.get("JOLLI_HOME")
    return Path(named).expanduser().absolute() if named else Path.home() / ".jolli"


def scope_folder(home: Path, scope: Scope) -> Path:
    """The folder of a scope: readable for people, told apart by a digest."""
    digest = sha256(msgspec.json.encode([scope.server, scope.space, scope.workspace])).hexdigest()[:12]
    host = scope.server.partition("://")[2] or scope.server
    words = [host, scope.space, Path(scope.workspace).name or "ops"]
    return home / "ops" / "-".join([*(re.sub(r"[^A-Za-z0-9.]+", "_", word)[:32] for word in words), digest])


def open_scope(home: Path, scope: Scope, *, files: Files = FILES) -> Path:
    """The folder of a scope, made if it is not there; nobody else may look into it. StorageFailed if it cannot be."""
    folder = scope_folder(home, scope)
    for part in (home / "ops", folder):
        make_private_folder(part)
    note = folder / SCOPE_NAME
    if not note.exists():
        replace_file(note, msgspec.json.encode(scope), mode=PRIVATE_FILE, files=files)
    return folder


def known_scopes(home: Path) -> list[tuple[Path, Scope]]:
    """Every scope that was ever used on this machine."""
    found = []
    for note in sorted((home / "ops").glob(f"*/{SCOPE_NAME}")):
        scope = read_document(note, msgspec.json.Decoder(Scope).decode, repair=f"Look at it: cat {note}")
        if scope is not None:
            found.append((note.parent, scope))
    return found


def make_private_folder(folder: Path) -> None:
    """The folder, with what is missing above it, for its owner only. One that others may look into is closed."""
    with explaining("make", folder):
        for part in (*reversed(folder.parents), folder):
            if not part.exists():
                with suppress(FileExistsError):
                    part.mkdir(mode=PRIVATE_FOLDER)
                # Not every file system lets a folder be synced by whoever made something in it.
                with suppress(PermissionError):
                    FILES.fsync_folder(str(part.parent))
        if folder.stat().st_mode & 0o077:
            folder.chmod(PRIVATE_FOLDER)


def make_private_file(path: Path) -> None:
    """An empty file for its owner only, unless there is one; for files that are appended to later."""
    if path.exists():
        return
    with explaining("make", path), suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))
