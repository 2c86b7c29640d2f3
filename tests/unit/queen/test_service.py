from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.clock import BadTime
from queueyard.kernel.testing import FakeClock
import queueyard.queen
from queueyard.queen import Queen
from queueyard.queen.errors import (
    AlreadyHeld,
    InvalidValue,
    NoBeads,
    NoIdentity,
    ReservationConflict,
    TimedOut,
    UnknownAgent,
)
from queueyard.queen.rules import owner_of
from queueyard.queen.store import MESSAGES, RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

    Open = Callable[[str], Queen]


class Meanwhile(FakeClock):
    """Somebody else acts once, a while after the waiting began."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[], object] | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.act is not None and self.monotonic() >= 2.0:
            act, self.act = self.act, None
            act()


# --- opening ---------------------------------------------------------------------------------------------------------


def test_the_library_is_one_name() -> None:
    assert queueyard.queen.__all__ == ["Queen"]
    with pytest.raises(AttributeError, match="King"):
        _ = queueyard.queen.King


def test_a_queen_is_opened_from_anywhere_below(home: Home) -> None:
    below = home.root / "src" / "deep"
    below.mkdir(parents=True)

    with Queen.open(below, agent="ui", environment={}) as queen:
        assert queen.home == home
        assert queen.agent == "ui"


def test_the_current_folder_and_the_environment_are_the_defaults(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.root)
    monkeypatch.delenv("BEADS_DIR", raising=False)
    monkeypatch.setenv("QUEEN_AGENT", "from-environment")

    with Queen.open() as queen:
        assert (queen.agent, queen.origin["agent"]) == ("from-environment", "environment")


def test_where_there_is_no_repository_nothing_is_opened(tmp_path: Path) -> None:
    with pytest.raises(NoBeads):
        Queen.open(tmp_path, environment={})


def test_who_acts_must_be_known(home: Home, queen_of: Open) -> None:
    home.droids.mkdir(parents=True)
    (home.droids / "ui.md").touch()
    nobody, stranger = queen_of(""), queen_of("u")

    with pytest.raises(NoIdentity):
        nobody.send("ui", "text")
    with pytest.raises(UnknownAgent, match="did you mean 'ui'"):
        stranger.reserve(["src/**"])
    assert stranger.droids() == ["ui"]


def test_what_a_dying_process_left_half_written_is_completed_on_opening(home: Home, write: Writer) -> None:
    lines = [msgspec.json.encode({"id": f"qr-{n}", "pattern": str(n), "agent": "api"}) for n in range(2)]
    with Queen.open(home.root, agent="ui", environment={}) as queen, queen.store.locked():
        pass
    write(RESERVATIONS, lines[0] + b"\n", lines[1][:20])
    note = {"file": RESERVATIONS, "lines": [line.decode() for line in lines]}
    (home.private / "unfinished.json").write_bytes(msgspec.json.encode(note))

    with Queen.open(home.root, agent="ui", environment={}) as queen:
        held = queen.reserved()

    assert [one.id for one in held] == ["qr-0", "qr-1"]
    assert not (home.private / "unfinished.json").exists()


# --- messages --------------------------------------------------------------------------------------------------------


def test_two_agents_talk(queen_of: Open, clock: FakeClock) -> None:
    ui, api = queen_of("ui"), queen_of("api")
    [question] = ui.send("api", "Which port?", subject="Port", issue="qb-42")

    clock.advance(60)
    [seen] = api.inbox(unread=True, since="5m", mark=True)
    answer = api.reply(question.id, "8080")

    assert seen.read
    assert api.inbox(unread=True) == []
    assert ui.inbox() == [answer]
    assert [one.id for one in ui.thread("qb-42")] == [question.id, answer.id]
    assert [one.id for one in ui.sent()] == [question.id]
    assert ui.sent(since="30s") == []
    assert ui.stats(since="30s").since_total == 1
    assert [one.id for one in ui.search("port", mine=True)] == [answer.id, question.id]
    assert ui.search("port", since="30s") == [answer]
    assert not ui.read(answer.id, peek=True).read
    assert ui.read(answer.id).read
    ui.delete(answer.id)
    assert ui.inbox() == []


def test_one_object_notices_what_others_write(queen_of: Open, write: Writer) -> None:
    ui, api = queen_of("ui"), queen_of("api")
    before = ui.inbox(), ui.reserved(), ui.assignments()

    api.send("ui", "text")
    api.reserve(["src/**"])
    write("queen_assignments.jsonl", {"id": "qa-1", "issue_id": "qb-1", "droid": "api"})

    assert before == ([], [], [])
    assert (len(ui.inbox()), len(ui.reserved()), len(ui.assignments())) == (1, 1, 1)


def test_a_time_that_makes_no_sense_is_refused(queen_of: Open) -> None:
    with pytest.raises(BadTime):
        queen_of("ui").inbox(since="when it was warm")


def test_waiting_ends_when_a_message_arrives(home: Home) -> None:
    clock = Meanwhile()
    with (
        Queen.open(home.root, agent="ui", environment={}, clock=clock) as ui,
        Queen.open(home.root, agent="api", environment={}, clock=clock) as api,
    ):
        clock.act = lambda: api.send("ui", "at last")

        [arrived] = ui.wait(timeout_s=60)

        assert arrived.body == "at last"
        assert clock.monotonic() < 3
        assert ui.wait(timeout_s=60) == [arrived], "waiting marks nothing"


def test_waiting_for_one_sender_is_not_ended_by_another(queen_of: Open, clock: FakeClock) -> None:
    queen_of("docs").send("ui", "text")

    with pytest.raises(TimedOut, match="no message for ui within 5 s"):
        queen_of("ui").wait(timeout_s=5, sender="api")
    assert clock.monotonic() >= 5


# --- assignments -----------------------------------------------------------------------------------------------------


def test_work_is_given_claimed_and_ended(queen_of: Open, write: Writer) -> None:
    write("issues.jsonl", {"id": "qb-1"}, {"id": "qb-2"})
    ui, api = queen_of("ui"), queen_of("api")

    ui.assign("qb-1", "api", worktree="w", reason="knows it")
    with pytest.raises(AlreadyHeld):
        ui.claim("qb-1")
    got = ui.next()
    api.complete("qb-1", reason="done")

    assert got is not None
    assert got.issue.id == "qb-2"
    assert [one.issue_id for one in ui.assignments(agent="ui", status="active")] == ["qb-2"]
    assert [(one.status, one.reason) for one in ui.assignments(issue="qb-1")] == [("completed", "done")]
    api.release("qb-2", force=True)
    assert ui.assignments(status="active") == []


def test_an_unknown_status_is_refused(queen_of: Open) -> None:
    with pytest.raises(InvalidValue, match="bogus"):
        queen_of("ui").assignments(status="bogus")


def test_issues_are_not_asked_for_where_the_settings_say_so(home: Home) -> None:
    environment = {"QUEEN_CHECK_ISSUES": "false"}

    with Queen.open(home.root, agent="ui", environment=environment) as queen:
        assert queen.claim("any-1").issue_id == "any-1"


# --- reservations ----------------------------------------------------------------------------------------------------


def test_patterns_are_seen_from_the_folder_that_one_stands_in(home: Home) -> None:
    (home.root / "src" / "ui").mkdir(parents=True)

    with Queen.open(home.root / "src" / "ui", agent="ui", environment={}) as queen:
        queen.reserve(["./*.ts", "docs/**", "../api/"])

        assert sorted(one.pattern for one in queen.reserved()) == ["docs/**", "src/api/**", "src/ui/*.ts"]
        assert [one.pattern for one in queen.reserved(path="./a.ts")] == ["src/ui/*.ts"]
        assert [verdict.path for verdict in queen.check("./a.ts", "docs/b")] == ["src/ui/a.ts", "docs/b"]
        assert [one.pattern for one in queen.renew("./*.ts")] == ["src/ui/*.ts"]
        assert [one.pattern for one in queen.unreserve("../api/")] == ["src/api/**"]


def test_how_long_and_how_strict_comes_from_the_settings_unless_it_is_said(home: Home, clock: FakeClock) -> None:
    environment = {"QUEEN_TTL": "1d", "QUEEN_STRICT": "true"}
    with (
        Queen.open(home.root, agent="ui", environment=environment, clock=clock) as ui,
        Queen.open(home.root, agent="api", environment={}, clock=clock) as api,
    ):
        [long] = ui.reserve(["src/**"]).reserved
        [short] = ui.reserve(["docs/**"], ttl="45m").reserved
        api.reserve(["lib/**"], shared=True)

        assert (long.expires_at, short.expires_at) == ("2026-01-02T00:00:00Z", "2026-01-01T00:45:00Z")
        with pytest.raises(ReservationConflict):
            ui.reserve(["lib/a"])
        assert ui.reserve(["lib/a"], strict=False).warnings
        with pytest.raises(InvalidValue):
            ui.reserve(["x"], ttl="0s")


def test_waiting_for_files_ends_when_they_are_given_back(home: Home) -> None:
    clock = Meanwhile()
    with (
        Queen.open(home.root, agent="ui", environment={}, clock=clock) as ui,
        Queen.open(home.root, agent="api", environment={}, clock=clock) as api,
    ):
        api.reserve(["src/**"])
        clock.act = api.unreserve

        [mine] = ui.reserve(["src/a"], wait_s=60).reserved

        assert owner_of(mine) == "ui"
        assert clock.monotonic() < 4


def test_waiting_for_files_ends_when_the_time_of_the_other_is_over(queen_of: Open, clock: FakeClock) -> None:
    queen_of("api").reserve(["src/**"], ttl="30s")

    queen_of("ui").reserve(["src/a"], wait_s=60)

    assert 30 < clock.monotonic() < 35


def test_waiting_for_files_in_vain_tells_who_has_them(queen_of: Open, clock: FakeClock) -> None:
    queen_of("api").reserve(["src/**"])

    with pytest.raises(ReservationConflict, match="api holds"):
        queen_of("ui").reserve(["src/a"], wait_s=10)
    assert clock.monotonic() >= 10


def test_conflicts_of_mine_are_those_that_concern_me(queen_of: Open) -> None:
    queen_of("api").reserve(["src/**"])
    queen_of("ui").reserve(["src/a"], force=True)

    assert len(queen_of("ui").conflicts(mine=True)) == len(queen_of("docs").conflicts()) == 1
    assert queen_of("docs").conflicts(mine=True) == []


def test_bad_lines_are_told_as_far_as_they_were_seen(queen_of: Open, write: Writer) -> None:
    write(MESSAGES, b"no json\n")
    write(RESERVATIONS, b"no json\n")
    queen = queen_of("ui")

    queen.inbox()
    after_messages = [line.path.name for line in queen.bad_lines()]
    queen.reserved()

    assert after_messages == [MESSAGES]
    assert [line.path.name for line in queen.bad_lines()] == [MESSAGES, RESERVATIONS]
