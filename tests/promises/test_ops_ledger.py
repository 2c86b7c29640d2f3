"""One suite over every store of the server: SQLite and PostgreSQL keep the same promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
import itertools
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queueyard.kernel.testing import FakeClock
from queueyard.ops import access, views
from queueyard.ops.database import Connection, Database, SqliteDatabase
from queueyard.ops.doctor import examine_ledger
from queueyard.ops.errors import LedgerFailed, UnknownItem
from queueyard.ops.ledger import Answered, Ledger, Push, SpaceName
from queueyard.ops.preparing import prepare
from queueyard.ops.problems import Problem
from queueyard.ops.records import Limits, Op, OpType, PullRequest, PushRequest, PushResponse, Status
from queueyard.ops.writer import Writer
from unit.ops.support.postgres import running_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPACE = SpaceName("default", "default")
OTHER = SpaceName("default", "other")
LIMITS = Limits(
    max_ops=500,
    max_body_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
    max_content_bytes=1 << 20,
    max_path_bytes=1024,
    answers_kept_days=30,
    encodings=[],
)
_names = itertools.count(1)

MakeDatabase = Callable[[], Database]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as running:
        yield running.address


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database."""
    if request.param == "sqlite":
        return SqliteDatabase(tmp_path / "ledger.sqlite3")
    import psycopg

    from queueyard.ops.postgres import PostgresDatabase

    address: str = request.getfixturevalue("postgres")
    name = f"ops{next(_names)}"
    with psycopg.connect(address, autocommit=True) as line:
        line.execute(f"CREATE DATABASE {name}".encode())
    return PostgresDatabase(address.replace("/postgres?", f"/{name}?"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(database: Database, clock: FakeClock) -> Iterator[Ledger]:
    ledger = Ledger(database, clock=clock)
    ledger.create()
    ledger.create_spaces("other")
    yield ledger
    ledger.close()


def op(number: int | str, text: str | None = "text", *, base: int = 0, path: str | None = None) -> Op:
    return Op(
        op_id=f"op{number}",
        type=OpType.DELETE if text is None else OpType.UPSERT,
        file_id=f"F{number}",
        server_path=path or f"{number}.md",
        base_version=base,
        content=text,
    )


def push(*ops: Op, request: str = "R1", index: int = 1, total: int = 1, space: SpaceName = SPACE) -> Push:
    body = msgspec.json.encode(PushRequest(request_id=request, batch_index=index, total_batches=total, ops=list(ops)))
    return Push(space=space, batch=prepare(body, LIMITS))


def apply(ledger: Ledger, one: Push) -> Answered:
    [answer] = ledger.apply([one])
    if isinstance(answer, Problem):
        raise answer
    return answer


def statuses(answer: Answered) -> list[Status]:
    return [result.status for result in msgspec.json.decode(answer.body, type=PushResponse).results]


def feed(ledger: Ledger, space: SpaceName = SPACE) -> list[tuple[int, str, int]]:
    return [(one.seq, one.op_id, one.version) for one in views.feed(ledger, space, after=0, limit=5000).entries]


class TestApplying:
    def test_a_batch_is_applied_and_answered(self, ledger: Ledger) -> None:
        answer = apply(ledger, push(op(1), op(2)))

        assert statuses(answer) == [Status.APPLIED, Status.APPLIED]
        assert feed(ledger) == [(1, "op1", 1), (2, "op2", 1)]
        assert [one.content for one in views.pull(ledger, SPACE, PullRequest()).changes] == ["text", "text"]

    def test_the_same_batch_again_gets_the_same_bytes(self, ledger: Ledger, database: Database) -> None:
        first = apply(ledger, push(op(1), op(2, base=5), op(3, path="../x")))
        apply(ledger, push(op(9), request="R2"))
        fresh = Ledger(database)

        again = apply(fresh, push(op(1), op(2, base=5), op(3, path="../x")))
        fresh.close()

        assert (again.replayed, again.body) == (True, first.body)
        assert len(feed(ledger)) == 2

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            (push(op(1, "other"), total=3), "idempotency_key_reused"),
            (push(op(1), total=4), "total_batches_changed"),
            (push(op(2), index=2, total=4), "total_batches_changed"),
            (push(op(3), index=3, total=3), "out_of_order"),
            (push(op(1), space=SpaceName("default", "nowhere")), "unknown_space"),
            (push(op(1), space=SpaceName("nobody", "default")), "unknown_space"),
        ],
    )
    def test_a_batch_that_does_not_fit_is_refused_and_leaves_nothing(
        self, ledger: Ledger, wrong: Push, code: str
    ) -> None:
        apply(ledger, push(op(1), total=3))

        with pytest.raises(Problem) as refused:
            apply(ledger, wrong)

        assert refused.value.kind.code == code
        assert feed(ledger) == [(1, "op1", 1)]

    def test_several_batches_share_a_transaction_and_a_refused_one_harms_none(self, ledger: Ledger) -> None:
        answers = ledger.apply(
            [
                push(op(1), total=2),
                push(op(7), request="R7", index=2, total=2),
                push(op(2), index=2, total=2),
                push(op(1), space=OTHER),
            ]
        )

        assert [isinstance(answer, Problem) for answer in answers] == [False, True, False, False]
        assert feed(ledger) == [(1, "op1", 1), (2, "op2", 1)]
        assert feed(ledger, OTHER) == [(1, "op1", 1)]

    def test_ops_of_one_batch_see_each_other(self, ledger: Ledger) -> None:
        apply(ledger, push(op(1, path="a"), op(2, path="b/c"), op(3, path="e/f")))

        answer = apply(
            ledger,
            push(
                op(1, "moved", base=1, path="z"),
                op(4, path="a"),
                op(5, path="A"),
                op(2, None, base=1),
                op(6, path="b"),
                op(7, path="b/d"),
                op(8, path="x/y"),
                op(9, path="x"),
                op(10, path="e"),
                request="R2",
            ),
        )

        assert statuses(answer) == [
            Status.APPLIED,
            Status.APPLIED,
            Status.CONFLICT,  # a differs only in case
            Status.APPLIED,
            Status.APPLIED,
            Status.CONFLICT,  # b is a file by now
            Status.APPLIED,
            Status.CONFLICT,  # x is a folder by now
            Status.CONFLICT,  # e was a folder before
        ]

    def test_paths_are_told_apart_byte_by_byte(self, ledger: Ledger) -> None:
        paths = ["a/b", "a-b", "a.b", "a0", "a", "ä/b", "a b/c"]

        answers = [
            apply(ledger, push(op(number, path=path), request=f"R{number}")) for number, path in enumerate(paths)
        ]

        assert [statuses(answer)[0] for answer in answers] == [
            Status.CONFLICT if path == "a" else Status.APPLIED for path in paths
        ]

    def test_texts_of_every_kind_come_back_as_they_were(self, ledger: Ledger) -> None:
        texts = ["", "\0", "ü\n\r\t", "\U0001f600", "x" * 100_000, "%s ? $1 \\ '"]

        apply(ledger, push(*(op(number, text) for number, text in enumerate(texts))))

        assert [one.content for one in views.pull(ledger, SPACE, PullRequest()).changes] == texts

    def test_rejected_ops_with_any_text_are_audited(self, ledger: Ledger) -> None:
        apply(ledger, push(op(1, path="a\0b"), op(2, path="../%s?")))

        entries = views.audit(ledger, SPACE, after=0, limit=10).entries

        assert [(one.seq, one.op_id, one.code) for one in entries] == [(1, "op1", "bad_path"), (2, "op2", "bad_path")]

    def test_answers_expire_and_their_keys_do_not(self, ledger: Ledger, clock: FakeClock) -> None:
        apply(ledger, push(op(1), total=2))
        clock.advance(timedelta(days=31).total_seconds())
        apply(ledger, push(op(2), index=2, total=2))

        expired = ledger.expire_answers("2026-01-30T00:00:00Z")

        assert expired == 1
        with pytest.raises(Problem) as refused:
            apply(ledger, push(op(1), total=2))
        assert refused.value.kind.code == "expired"
        assert apply(ledger, push(op(2), index=2, total=2)).replayed
        assert len(feed(ledger)) == 2


class Failing:
    """A line that fails at its n-th statement of a writing transaction, counted over the life of the object."""

    def __init__(self, line: Connection, fail_at: int | None) -> None:
        self._line = line
        self._fail_at = fail_at
        self.count = 0

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        self._step()
        return self._line.rows(sql, values)

    def run_many(self, sql: str, many: Any) -> None:
        self._step()
        self._line.run_many(sql, many)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._line.writing():
            yield
            self._step()  # right before the commit

    def reading(self) -> AbstractContextManager[None]:
        return self._line.reading()

    def close(self) -> None:
        self._line.close()

    def _step(self) -> None:
        self.count += 1
        if self.count == self._fail_at:
            raise LedgerFailed("no space left")


class TestAllOrNothing:
    def test_wherever_it_fails_before_the_commit_nothing_is_there(self, ledger: Ledger) -> None:
        real = ledger.line
        batch = [op(1, "new", base=1), op(2), op(3, base=7), op(4, None)]
        apply(ledger, push(op(1)))
        whole = Failing(real, None)
        ledger.line = whole
        apply(ledger, push(*batch, request="COUNTED"))
        assert whole.count > 8

        for fail_at in range(1, whole.count + 1):
            ledger.line = Failing(real, fail_at)
            mine = [msgspec.structs.replace(one, file_id=f"{one.file_id}-{fail_at}") for one in batch]
            moved = [msgspec.structs.replace(one, server_path=f"{fail_at}/{one.server_path}") for one in mine]
            before = snapshot(real)
            with pytest.raises(LedgerFailed):
                ledger.apply([push(*moved, request=f"R-{fail_at}")])
            ledger.line = real

            assert snapshot(real) == before

        assert apply(ledger, push(*batch, request="COUNTED")).replayed
        assert examine_ledger(ledger) == []

    def test_a_text_that_was_rolled_back_is_stored_by_the_next_batch_that_brings_it(self, ledger: Ledger) -> None:
        real = ledger.line
        ledger.line = whole = Failing(real, None)
        apply(ledger, push(op(1, "one")))
        ledger.line = Failing(real, whole.count)
        with pytest.raises(LedgerFailed):
            ledger.apply([push(op(2, "two"), request="ROLLED-BACK")])
        ledger.line = real

        apply(ledger, push(op(3, "two"), request="NEXT"))

        assert examine_ledger(ledger) == []
        assert [bytes(text) for (text,) in real.rows("SELECT content FROM blob ORDER BY id")] == [b"one", b"two"]


def snapshot(line: Connection) -> list[list[tuple[Any, ...]]]:
    tables = ("space", "file", "change", "audit", "request", "batch")
    return [sorted(line.rows(f"SELECT * FROM {table}"), key=repr) for table in tables]


class TestTogether:
    def test_many_writers_make_one_dense_feed(self, ledger: Ledger, database: Database) -> None:
        def write(client: int) -> list[bytes]:
            mine = Ledger(database)
            bodies = []
            try:
                for index in range(1, 6):
                    ops = [op(f"{client}-{index}-{number}") for number in range(3)]
                    bodies.append(apply(mine, push(*ops, request=f"C{client}", index=index, total=5)).body)
            finally:
                mine.close()
            return bodies

        with ThreadPoolExecutor(6) as pool:
            answers = [body for bodies in pool.map(write, range(6)) for body in bodies]

        told = feed(ledger)
        assert [seq for seq, _, _ in told] == list(range(1, 91))
        assert len({op_id for _, op_id, _ in told}) == 90
        cursors = sorted(msgspec.json.decode(body)["newCursor"] for body in answers)
        assert cursors == list(range(3, 91, 3))

    def test_one_key_from_many_writers_is_applied_once(self, ledger: Ledger, database: Database) -> None:
        def write(_: int) -> bytes:
            mine = Ledger(database)
            try:
                return apply(mine, push(op(1), op(2))).body
            finally:
                mine.close()

        with ThreadPoolExecutor(6) as pool:
            answers = set(pool.map(write, range(12)))

        assert len(answers) == 1
        assert len(feed(ledger)) == 2

    def test_writers_that_bring_the_same_texts_to_several_spaces_do_not_wait_in_a_circle(
        self, ledger: Ledger, database: Database
    ) -> None:
        names = ledger.create_spaces(*(f"s{number}" for number in range(4)))

        def write(number: int) -> Answered:
            mine = Ledger(database)
            texts = [f"shared {n}" for n in range(30)]
            ops = [op(n, text) for n, text in enumerate(texts[:: 1 if number % 2 else -1])]
            try:
                return apply(mine, push(*ops, space=SpaceName("default", names[number])))
            finally:
                mine.close()

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(write, range(4)))

        assert all(statuses(answer) == [Status.APPLIED] * 30 for answer in answers)
        assert ledger.line.rows("SELECT COUNT(*) FROM blob") == [(30,)]

    def test_the_writer_serves_everybody_and_finishes_before_it_stops(self, ledger: Ledger, database: Database) -> None:
        writer = Writer(lambda: Ledger(database), max_waiting=100, max_waiting_bytes=1 << 20)
        writer.start()

        waiting = [
            writer.submit(push(op(number), request=f"R{number}", space=SPACE if number % 2 else OTHER))
            for number in range(40)
        ]
        writer.stop()

        assert all(one.result(0).counts == {Status.APPLIED: 1} for one in waiting)
        assert len(feed(ledger)) + len(feed(ledger, OTHER)) == 40
        with pytest.raises(Problem) as refused:
            writer.submit(push(op(99)))
        assert refused.value.kind.code == "shutting_down"


class TestTokens:
    def test_a_token_lets_its_holder_in_until_it_is_revoked_or_over(self, ledger: Ledger, clock: FakeClock) -> None:
        token, text = access.create_token(
            ledger, name="ana", scopes=["push"], spaces=["docs"], lives=timedelta(hours=1), clock=clock
        )

        caller = access.caller_of(ledger, text, clock=clock)

        assert (caller.user_id, caller.scopes, caller.spaces) == ("ana", frozenset({"push"}), frozenset({"docs"}))
        assert access.tokens(ledger) == [token]
        assert access.has_tokens(ledger)
        clock.advance(3600)
        with pytest.raises(Problem, match="not, or no longer, valid"):
            access.caller_of(ledger, text, clock=clock)

        access.revoke_token(ledger, token.id, clock=clock)

        assert not access.has_tokens(ledger)
        with pytest.raises(UnknownItem):
            access.revoke_token(ledger, "none", clock=clock)


class TestReading:
    def test_a_page_is_of_one_moment(self, ledger: Ledger, database: Database) -> None:
        apply(ledger, push(op(1), op(2)))
        reader = Ledger(database)

        with reader.line.reading():
            before = views.spaces(reader)
            apply(ledger, push(op(3), request="R2"))
            during = views.spaces(reader)
        after = views.spaces(reader)
        reader.close()

        assert before == during
        assert [one.head for one in after if one.slug == "default"] == [3]

    def test_the_books_are_well(self, ledger: Ledger) -> None:
        apply(ledger, push(op(1), op(2, base=4), total=2))
        apply(ledger, push(op(1, None, base=1), index=2, total=2))

        assert examine_ledger(ledger) == []

    def test_making_the_tables_twice_changes_nothing(self, ledger: Ledger) -> None:
        apply(ledger, push(op(1)))

        ledger.create()

        assert len(feed(ledger)) == 1

    def test_books_of_a_newer_version_are_refused(self, ledger: Ledger) -> None:
        with ledger.line.writing():
            ledger.line.rows("UPDATE meta SET value = '99' WHERE name = 'schema'")

        with pytest.raises(LedgerFailed, match="schema 99"):
            ledger.create()


def make_older(ledger: Ledger) -> None:
    """Bring the tables back to version 1."""
    steps = ["ALTER TABLE file DROP COLUMN blob_id", "ALTER TABLE change DROP COLUMN blob_id"]
    if ledger.database.indexed_together:
        steps += [
            "ALTER TABLE blob RENAME TO newer",
            "CREATE TABLE blob (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, content BLOB NOT NULL)",
            "INSERT INTO blob (id, hash, content) SELECT id, hash, content FROM newer",
            "DROP TABLE newer",
            "DROP TABLE blob_hash",
            "DELETE FROM meta WHERE name = 'indexed'",
        ]
    with ledger.line.writing():
        for step in [*steps, "UPDATE meta SET value = '1' WHERE name = 'schema'"]:
            ledger.line.rows(step)


class TestOlderTables:
    def test_they_are_brought_up_to_date_with_all_their_texts(self, ledger: Ledger, database: Database) -> None:
        apply(ledger, push(op(1, "one"), op(2, "two"), op(3, "two")))
        apply(ledger, push(op(1, None, base=1), op(2, "new", base=1), request="R2"))
        before = views.feed(ledger, SPACE, after=0, limit=100, content=True)
        make_older(ledger)

        fresh = Ledger(database)
        fresh.create()
        apply(fresh, push(op(4, "one"), op(5, "fresh"), request="R3"))

        assert views.feed(fresh, SPACE, after=0, limit=before.last, content=True).entries == before.entries
        assert {one.file_id: one.content for one in views.pull(fresh, SPACE, PullRequest()).changes} == {
            "F2": "new",
            "F3": "two",
            "F4": "one",
            "F5": "fresh",
        }
        assert fresh.line.rows("SELECT COUNT(*) FROM blob") == [(4,)]
        assert examine_ledger(fresh) == []
        fresh.close()

    def test_several_servers_may_start_on_them_at_once(self, ledger: Ledger, database: Database) -> None:
        apply(ledger, push(op(1, "one")))
        make_older(ledger)

        def start(_: int) -> str | None:
            mine = Ledger(database)
            try:
                mine.create()
                [entry] = views.feed(mine, SPACE, after=0, limit=100, content=True).entries
                return entry.content
            finally:
                mine.close()

        with ThreadPoolExecutor(4) as pool:
            contents = list(pool.map(start, range(4)))

        assert contents == ["one"] * 4

    def test_the_doctor_says_how(self, ledger: Ledger) -> None:
        make_older(ledger)

        with pytest.raises(LedgerFailed, match="schema 1") as told:
            examine_ledger(ledger)

        assert "jolli-ops serve" in (told.value.hint or "")
