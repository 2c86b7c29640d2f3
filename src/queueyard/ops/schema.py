"""The tables of the server, in the words that both dialects know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.ops.errors import LedgerFailed
from queueyard.ops.records import DEFAULT_SPACE, DEFAULT_TENANT

if TYPE_CHECKING:
    from queueyard.ops.database import Connection, Database

SCHEMA_VERSION = 1

_TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) {table}",
    # seq and audit_seq are the last numbers given out; taking the next one locks the space, so they have no gaps
    """CREATE TABLE IF NOT EXISTS space (
        id {serial}, tenant TEXT NOT NULL, slug TEXT NOT NULL,
        seq {number} NOT NULL DEFAULT 0, audit_seq {number} NOT NULL DEFAULT 0,
        created_at TEXT NOT NULL, UNIQUE (tenant, slug))""",
    # every text once, whoever has it in whichever version
    "CREATE TABLE IF NOT EXISTS blob (id {serial}, hash {bytes} NOT NULL UNIQUE, content {bytes} NOT NULL)",
    """CREATE TABLE IF NOT EXISTS file (
        space_id {number} NOT NULL, file_id TEXT NOT NULL, path TEXT NOT NULL, path_key {key},
        version {number} NOT NULL, deleted {number} NOT NULL, hash {bytes}, seq {number} NOT NULL,
        PRIMARY KEY (space_id, file_id)) {table}""",
    # The second fence behind the rule that a path belongs to one file. A tombstone has no path_key. (An index over
    # live files only, with WHERE, is passed over by SQLite when it is asked for many paths at once.)
    "CREATE UNIQUE INDEX IF NOT EXISTS file_path ON file (space_id, path_key)",
    "CREATE INDEX IF NOT EXISTS file_seq ON file (space_id, seq)",
    """CREATE TABLE IF NOT EXISTS change (
        space_id {number} NOT NULL, seq {number} NOT NULL, op TEXT NOT NULL, file_id TEXT NOT NULL,
        version {number} NOT NULL, base_version {number} NOT NULL, path TEXT NOT NULL, previous_path TEXT,
        hash {bytes}, size {number} NOT NULL, request_id TEXT NOT NULL, batch_index {number} NOT NULL,
        op_id TEXT NOT NULL, client_id TEXT, user_id TEXT, accepted_at TEXT NOT NULL,
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


def create(database: Database, connection: Connection, *, now: str) -> None:
    """The tables and the default space, unless they are there. LedgerFailed if a newer version has made them."""
    with connection.writing():
        for table in _TABLES:
            connection.rows(table.format(**database.types))
        connection.rows(
            "INSERT INTO meta (name, value) VALUES ('schema', ?) ON CONFLICT (name) DO NOTHING", (str(SCHEMA_VERSION),)
        )
        connection.rows(
            "INSERT INTO space (tenant, slug, created_at) VALUES (?, ?, ?) ON CONFLICT (tenant, slug) DO NOTHING",
            (DEFAULT_TENANT, DEFAULT_SPACE, now),
        )
    [(version,)] = connection.rows("SELECT value FROM meta WHERE name = 'schema'")
    if int(version) != SCHEMA_VERSION:
        raise LedgerFailed(
            f"{database.describe()} has schema {version}, this version knows {SCHEMA_VERSION}",
            hint="Use the version of jolli-ops that made it, or a newer one.",
        )
