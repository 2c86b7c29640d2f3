"""The tables of the server, in the words that both dialects know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.ops.errors import LedgerFailed
from queueyard.ops.records import DEFAULT_SPACE, DEFAULT_TENANT

if TYPE_CHECKING:
    from queueyard.ops.database import Connection, Database

SCHEMA_VERSION = 2

_TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) {table}",
    # seq and audit_seq are the last numbers given out; taking the next one locks the space, so they have no gaps
    """CREATE TABLE IF NOT EXISTS space (
        id {serial}, tenant TEXT NOT NULL, slug TEXT NOT NULL,
        seq {number} NOT NULL DEFAULT 0, audit_seq {number} NOT NULL DEFAULT 0,
        created_at TEXT NOT NULL, UNIQUE (tenant, slug))""",
    # every text once, whoever has it in whichever version
    "CREATE TABLE IF NOT EXISTS blob (id {serial}, hash {hash}, content {bytes} NOT NULL)",
    """CREATE TABLE IF NOT EXISTS file (
        space_id {number} NOT NULL, file_id TEXT NOT NULL, path TEXT NOT NULL, path_key {key},
        version {number} NOT NULL, deleted {number} NOT NULL, hash {bytes}, seq {number} NOT NULL, blob_id {number},
        PRIMARY KEY (space_id, file_id)) {table}""",
    # The second fence behind the rule that a path belongs to one file. A tombstone has no path_key. (An index over
    # live files only, with WHERE, is passed over by SQLite when it is asked for many paths at once.)
    "CREATE UNIQUE INDEX IF NOT EXISTS file_path ON file (space_id, path_key)",
    "CREATE INDEX IF NOT EXISTS file_seq ON file (space_id, seq)",
    """CREATE TABLE IF NOT EXISTS change (
        space_id {number} NOT NULL, seq {number} NOT NULL, op TEXT NOT NULL, file_id TEXT NOT NULL,
        version {number} NOT NULL, base_version {number} NOT NULL, path TEXT NOT NULL, previous_path TEXT,
        hash {bytes}, size {number} NOT NULL, request_id TEXT NOT NULL, batch_index {number} NOT NULL,
        op_id TEXT NOT NULL, client_id TEXT, user_id TEXT, accepted_at TEXT NOT NULL, blob_id {number},
        PRIMARY KEY (space_id, seq)) {table}""",
    """CREATE TABLE IF NOT EXISTS audit (
        space_id {number} NOT NULL, seq {number} NOT NULL, status TEXT NOT NULL, code TEXT NOT NULL, detail TEXT,
        type TEXT NOT NULL, file_id TEXT NOT NULL, path TEXT NOT NULL, base_version {number} NOT NULL,
        server_version {number}, request_id TEXT NOT NULL, batch_index {number} NOT NULL, op_id TEXT NOT NULL,
        client_id TEXT, user_id TEXT, at TEXT NOT NULL,
        PRIMARY KEY (space_id, seq)) {table}""",
    """CREATE TABLE IF NOT EXISTS request (
        space_id {number} NOT NULL, request_id TEXT NOT NULL, total {number} NOT NULL, done {number} NOT NULL,
        message TEXT, client_id TEXT, user_id TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
        PRIMARY KEY (space_id, request_id)) {table}""",
    # the key stays for ever; the answer goes when it is old
    """CREATE TABLE IF NOT EXISTS batch (
        space_id {number} NOT NULL, request_id TEXT NOT NULL, batch_index {number} NOT NULL,
        fingerprint {bytes} NOT NULL, answer {bytes}, answered_at TEXT NOT NULL,
        PRIMARY KEY (space_id, request_id, batch_index)) {table}""",
    "CREATE INDEX IF NOT EXISTS batch_age ON batch (answered_at) WHERE answer IS NOT NULL",
    # only the digest of a token is kept
    """CREATE TABLE IF NOT EXISTS token (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, digest {bytes} NOT NULL, tenant TEXT NOT NULL, scopes TEXT NOT NULL,
        spaces TEXT NOT NULL, rate_per_s {number}, created_at TEXT NOT NULL, expires_at TEXT,
        revoked_at TEXT) {table}""",
)


#: where texts are indexed in bulk: up to the number that `meta` has for 'indexed' (see `texts.py`)
_BULK_INDEX = (
    "CREATE TABLE IF NOT EXISTS blob_hash (hash {bytes} PRIMARY KEY, id {number} NOT NULL) {table}",
    "INSERT INTO meta (name, value) VALUES ('indexed', '0') ON CONFLICT (name) DO NOTHING",
)

#: version 1 looked for a text by its hash alone
_FROM_1 = (
    "ALTER TABLE file ADD COLUMN blob_id {number}",
    "ALTER TABLE change ADD COLUMN blob_id {number}",
    "UPDATE file SET blob_id = (SELECT id FROM blob WHERE blob.hash = file.hash) WHERE deleted = 0",
    "UPDATE change SET blob_id = (SELECT id FROM blob WHERE blob.hash = change.hash) WHERE hash IS NOT NULL",
)
_TO_BULK_FROM_1 = (
    *_BULK_INDEX,
    "INSERT INTO blob_hash (hash, id) SELECT hash, id FROM blob ORDER BY hash",
    "UPDATE meta SET value = (SELECT COALESCE(MAX(id), 0) FROM blob) WHERE name = 'indexed'",
    # An index that belongs to a column goes only with its table.
    "ALTER TABLE blob RENAME TO blob_of_1",
    "CREATE TABLE blob (id {serial}, hash {hash}, content {bytes} NOT NULL)",
    "INSERT INTO blob (id, hash, content) SELECT id, hash, content FROM blob_of_1 ORDER BY id",
    "DROP TABLE blob_of_1",
)


def create(database: Database, connection: Connection, *, now: str) -> None:
    """The tables and the default space, unless they are there; those of an older version are brought up to date.

    LedgerFailed if a newer version has made them.
    """
    with connection.writing():
        connection.rows(_TABLES[0].format(**database.types))
        # Whoever starts at the same time waits here, and finds the work done.
        made_by = connection.rows(f"SELECT value FROM meta WHERE name = 'schema'{database.lock_rows}")  # noqa: S608
        if made_by == [("1",)]:
            for step in (*_FROM_1, *(_TO_BULK_FROM_1 if database.indexed_together else ())):
                connection.rows(step.format(**database.types))
            connection.rows("UPDATE meta SET value = ? WHERE name = 'schema'", (str(SCHEMA_VERSION),))
        for step in (*_TABLES, *(_BULK_INDEX if database.indexed_together else ())):
            connection.rows(step.format(**database.types))
        connection.rows(
            "INSERT INTO meta (name, value) VALUES ('schema', ?) ON CONFLICT (name) DO NOTHING", (str(SCHEMA_VERSION),)
        )
        connection.rows(
            "INSERT INTO space (tenant, slug, created_at) VALUES (?, ?, ?) ON CONFLICT (tenant, slug) DO NOTHING",
            (DEFAULT_TENANT, DEFAULT_SPACE, now),
        )
    check(database, connection)


def check(database: Database, connection: Connection) -> None:
    """LedgerFailed if the tables are not of this version."""
    [(version,)] = connection.rows("SELECT value FROM meta WHERE name = 'schema'")
    if int(version) > SCHEMA_VERSION:
        hint = "Use the version of jolli-ops that made it, or a newer one."
    elif int(version) < SCHEMA_VERSION:
        hint = "Start the server once, it brings them up to date: jolli-ops serve --data DIR"
    else:
        return
    raise LedgerFailed(f"{database.describe()} has schema {version}, this version knows {SCHEMA_VERSION}", hint=hint)
