from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest

from queueyard.kernel.clock import to_rfc3339
from queueyard.queen import reservations
from queueyard.queen.errors import CannotTell, NotYours, ReservationConflict, UnknownAgent, UnknownRecord
from queueyard.queen.globs import BadPattern, overlaps, parse
from queueyard.queen.records import Reservation
from queueyard.queen.reservations import Book, Reserved, glob_of
from queueyard.queen.rules import owner_of
from queueyard.queen.store import RESERVATIONS, Store

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

HOUR = 3600.0


@pytest.fixture
def book(store: Store) -> Book:
    return Book(store)


@pytest.fixture
def desk(store: Store, book: Book, clock: FakeClock) -> Desk:
    return Desk(store, book, clock)


class Desk:
    """The verbs, with store, book and clock filled in; each a second after the one before."""

    def __init__(self, store: Store, book: Book, clock: FakeClock) -> None:
        self.store, self.book, self.clock = store, book, clock

    def reserve(self, agent: str, *patterns: str, ttl_s: float = HOUR, **options: Any) -> Reserved:
        self.clock.advance(1)
        return reservations.reserve(
            self.store, self.book, self.clock, agent=agent, patterns=patterns, ttl_s=ttl_s, **options
        )

    def renew(self, agent: str, *wanted: str, ttl_s: float = HOUR) -> list[Reservation]:
        self.clock.advance(1)
        return reservations.renew(self.store, self.book, self.clock, agent=agent, wanted=wanted, ttl_s=ttl_s)

    def unreserve(self, agent: str, *wanted: str, force: bool = False) -> list[Reservation]:
        self.clock.advance(1)
        return reservations.unreserve(self.store, self.book, self.clock, agent=agent, wanted=wanted, force=force)

    def held(self, **wanted: Any) -> list[tuple[str, str]]:
        return [(owner_of(one), one.pattern) for one in reservations.reserved(self.book, self.clock, **wanted)]

    def allowed(self, agent: str, *paths: str) -> list[bool]:
        return [one.allowed for one in reservations.check(self.book, self.clock, agent=agent, paths=paths)]


def in_an_hour(clock: FakeClock) -> str:
    return to_rfc3339(clock.now() + timedelta(hours=1))


# --- reserve ---------------------------------------------------------------------------------------------------------


def test_a_reservation_is_written_in_full_with_both_names_of_the_owner(desk: Desk, store: Store) -> None:
    [held] = desk.reserve("ui", "src/**", issue="qb-42", reason="buttons").reserved

    store.reservations.refresh()
    assert store.reservations.raw(held.id) == {
        "id": held.id,
        "created_at": "2026-01-01T00:00:01Z",
        "expires_at": "2026-01-01T01:00:01Z",
        "pattern": "src/**",
        "agent": "ui",
        "droid": "ui",
        "issue_id": "qb-42",
        "status": "active",
        "exclusive": True,
        "reason": "buttons",
    }
    assert held.id.startswith("qr-")


def test_all_patterns_are_reserved_or_none(desk: Desk, home: Home) -> None:
    desk.reserve("api", "src/api/**")
    before = (home.beads / RESERVATIONS).read_bytes()

    with pytest.raises(ReservationConflict, match="api holds src/api/") as refusal:
        desk.reserve("ui", "docs/**", "src/*/index.ts")

    assert (home.beads / RESERVATIONS).read_bytes() == before
    assert [(one.pattern, owner_of(one.held)) for one in refusal.value.conflicts] == [("src/*/index.ts", "api")]
    assert refusal.value.facts()["conflicts"][0]["clash"] == "blocks"
    assert "both cover src/api/index.ts" in str(refusal.value)


def test_what_does_not_overlap_is_free(desk: Desk) -> None:
    desk.reserve("api", "src/api/**", "*.md")

    desk.reserve("ui", "src/ui/**", "docs/*.md", "src/ap")

    assert len(desk.held()) == 5


def test_reserving_again_renews_instead_of_stacking(desk: Desk) -> None:
    [first] = desk.reserve("ui", "src/**", reason="buttons").reserved

    [again] = desk.reserve("ui", "src/**", ttl_s=2 * HOUR).reserved

    assert (again.id, again.created_at, again.reason) == (first.id, first.created_at, "buttons")
    assert (again.expires_at, again.renewed_at) == ("2026-01-01T02:00:02Z", "2026-01-01T00:00:02Z")
    assert desk.held() == [("ui", "src/**")]


def test_reserving_again_for_a_shorter_time_shortens_nothing(desk: Desk) -> None:
    [first] = desk.reserve("ui", "src/**").reserved

    [again] = desk.reserve("ui", "src/**", ttl_s=60).reserved

    assert again.expires_at == first.expires_at


def test_two_spellings_of_one_pattern_are_one_reservation(desk: Desk) -> None:
    desk.reserve("ui", "src/", "src/**", "./src//**")

    assert desk.held() == [("ui", "src/**")]


@pytest.mark.parametrize(("shared", "other_shared", "strict", "refused", "warned"), [
    (False, False, False, True, False),
    (True, False, False, False, True),
    (False, True, False, False, True),
    (True, True, False, False, False),
    (True, False, True, True, False),
    (False, True, True, True, False),
    (True, True, True, False, False),
])  # fmt: skip
def test_shared_and_exclusive_warn_each_other_and_block_when_strict(
    desk: Desk, shared: bool, other_shared: bool, strict: bool, refused: bool, warned: bool
) -> None:
    desk.reserve("api", "src/**", exclusive=not other_shared)

    if refused:
        with pytest.raises(ReservationConflict):
            desk.reserve("ui", "src/a", exclusive=not shared, strict=strict)
    else:
        done = desk.reserve("ui", "src/a", exclusive=not shared, strict=strict)
        assert bool(done.warnings) is warned


def test_force_reserves_and_tells_what_it_went_over(desk: Desk) -> None:
    desk.reserve("api", "src/**")

    done = desk.reserve("ui", "src/a", force=True)

    assert len(done.warnings) == 1
    assert "api holds src/** exclusively" in done.warnings[0]
    assert sorted(desk.held()) == [("api", "src/**"), ("ui", "src/a")]


def test_a_reservation_ends_by_itself(desk: Desk, clock: FakeClock) -> None:
    desk.reserve("api", "src/**", ttl_s=60)
    clock.advance(60)
    still = desk.held()

    clock.advance(0.001)

    assert still == [("api", "src/**")]
    assert desk.held() == []
    assert desk.allowed("ui", "src/a") == [True]
    desk.reserve("ui", "src/**")


def test_a_bad_pattern_or_an_unknown_agent_reserves_nothing(desk: Desk, home: Home) -> None:
    with pytest.raises(BadPattern):
        desk.reserve("ui", "docs/**", "bad[")
    home.droids.mkdir(parents=True)
    with pytest.raises(UnknownAgent):
        desk.reserve("ui", "docs/**")

    assert not (home.beads / RESERVATIONS).exists()


@pytest.mark.parametrize("left", [{"agent": "api"}, {"droid": "api"}, {"agent": "", "droid": "api"}, {}])
def test_what_other_tools_wrote_counts_too(desk: Desk, clock: FakeClock, write: Writer, left: dict[str, str]) -> None:
    write(
        RESERVATIONS, {"id": "qr-1", "pattern": "src/**", "expires_at": in_an_hour(clock), "status": "active", **left}
    )

    with pytest.raises(ReservationConflict):
        desk.reserve("ui", "src/a")
    assert desk.allowed("ui", "src/a") == [False]


def test_what_another_tool_stored_and_is_no_glob_stands_for_the_file_of_that_name(
    desk: Desk, clock: FakeClock, write: Writer
) -> None:
    write(RESERVATIONS, {"id": "qr-1", "pattern": "odd[", "agent": "api", "expires_at": in_an_hour(clock)})

    assert desk.allowed("ui", "odd[", "odd") == [False, True]
    assert glob_of(Reservation(id="qr-2", pattern="../up")) is None


def test_what_is_deleted_or_given_back_by_another_tool_is_free(desk: Desk, clock: FakeClock, write: Writer) -> None:
    common = {"agent": "api", "expires_at": in_an_hour(clock)}
    write(
        RESERVATIONS,
        {"id": "qr-1", "pattern": "a", **common},
        {"id": "qr-2", "pattern": "b", **common},
        {"id": "qr-1", "deleted": True},
        {"id": "qr-2", "status": "released"},
    )

    assert desk.allowed("ui", "a", "b") == [True, True]
    assert desk.held() == []


# --- renew and unreserve ---------------------------------------------------------------------------------------------


def test_renewing_moves_the_end_of_what_is_named_or_of_all(desk: Desk) -> None:
    [a, b] = desk.reserve("ui", "a", "b").reserved
    desk.reserve("api", "c")

    named = desk.renew("ui", "a", ttl_s=2 * HOUR)
    everything = desk.renew("ui", ttl_s=3 * HOUR)

    assert [(one.id, one.expires_at) for one in named] == [(a.id, "2026-01-01T02:00:03Z")]
    assert {one.id for one in everything} == {a.id, b.id}
    assert {one.expires_at for one in everything} == {"2026-01-01T03:00:04Z"}
    assert desk.renew("ui", b.id, ttl_s=1)[0].expires_at == "2026-01-01T03:00:04Z"


def test_what_has_ended_is_not_renewed_but_must_be_reserved_again(desk: Desk, clock: FakeClock) -> None:
    desk.reserve("ui", "a", ttl_s=10)
    clock.advance(20)

    with pytest.raises(UnknownRecord, match="no reservation 'a'"):
        desk.renew("ui", "a")
    assert desk.renew("ui") == []


def test_giving_back_by_pattern_by_id_or_all(desk: Desk, clock: FakeClock) -> None:
    [_, _, third] = desk.reserve("ui", "a", "src/", "c").reserved
    desk.reserve("ui", "d", "e")

    by_pattern = desk.unreserve("ui", "a", "src/")
    by_id = desk.unreserve("ui", third.id)
    rest = desk.unreserve("ui")

    assert [one.pattern for one in by_pattern] == ["a", "src/**"]
    assert [(one.pattern, one.status, one.released_at) for one in by_id] == [("c", "released", "2026-01-01T00:00:04Z")]
    assert {one.pattern for one in rest} == {"d", "e"}
    assert desk.held() == []
    assert desk.allowed("api", "a", "src/x", "c", "d") == [True] * 4


def test_nobody_gives_back_what_another_holds_unless_forced(desk: Desk) -> None:
    desk.reserve("api", "a")
    desk.reserve("ui", "b")

    for verb in (desk.renew, desk.unreserve):
        with pytest.raises(NotYours, match="held by api"):
            verb("ui", "b", "a")
    assert len(desk.held()) == 2
    desk.unreserve("ui", "a", force=True)
    assert desk.held() == [("ui", "b")]


def test_keys_of_other_tools_survive_renewing_and_giving_back(
    desk: Desk, store: Store, clock: FakeClock, write: Writer
) -> None:
    write(RESERVATIONS, {"id": "qr-1", "pattern": "a", "droid": "ui", "expires_at": in_an_hour(clock), "their": 1})

    desk.renew("ui", "a", ttl_s=2 * HOUR)
    desk.unreserve("ui", "a")

    store.reservations.refresh()
    raw = store.reservations.raw("qr-1")
    assert (raw["their"], raw["agent"], raw["droid"], raw["status"]) == (1, "ui", "ui", "released")


# --- reserved, check, conflicts --------------------------------------------------------------------------------------


def test_what_holds_is_listed_soonest_to_end_first(desk: Desk) -> None:
    desk.reserve("ui", "late", ttl_s=3 * HOUR)
    desk.reserve("api", "soon", ttl_s=HOUR)
    desk.reserve("ui", "src/**", ttl_s=2 * HOUR)

    assert [pattern for _, pattern in desk.held()] == ["soon", "src/**", "late"]
    assert desk.held(agent="ui") == [("ui", "src/**"), ("ui", "late")]
    assert desk.held(path="src/deep/a") == [("ui", "src/**")]
    assert desk.held(path="nothing") == []


def test_one_may_edit_what_nobody_else_holds_exclusively(desk: Desk) -> None:
    desk.reserve("api", "src/**")
    desk.reserve("api", "docs/**", exclusive=False)

    assert desk.allowed("ui", "src/a", "docs/a", "other") == [False, True, True]
    assert desk.allowed("api", "src/a") == [True]
    [verdict] = reservations.check(desk.book, desk.clock, agent="ui", paths=["src/a"])
    assert [owner_of(one) for one in verdict.held_by] == ["api"]


def test_a_path_that_leads_out_is_never_called_free(desk: Desk) -> None:
    for path in ("../secret", "/etc/passwd"):
        with pytest.raises(BadPattern):
            desk.allowed("ui", path)


def test_a_line_that_nobody_can_read_may_say_no(desk: Desk, write: Writer) -> None:
    write(RESERVATIONS, {"id": "qr-1", "pattern": "a", "exclusive": "certainly"})

    with pytest.raises(CannotTell, match="line 1"):
        desk.allowed("ui", "a")


def test_a_line_that_a_dying_writer_left_says_nothing(desk: Desk, write: Writer) -> None:
    """Nobody was ever told that it was made, whether the next append has closed it or not."""
    write(RESERVATIONS, b'{"id":"qr-1","pattern":"src/**","agent":"ap')
    before = desk.allowed("ui", "src/a")

    desk.reserve("docs", "docs/**")

    assert before == [True]
    assert desk.allowed("ui", "src/a", "docs/a") == [True, False]


def test_a_conflict_says_who_what_and_what_to_do(desk: Desk) -> None:
    desk.reserve("api", "src/*/x.ts")
    desk.reserve("ui", "src/a/*.ts", force=True)

    [found] = reservations.conflicts(desk.book, desk.clock)

    assert (owner_of(found.reservation_a), owner_of(found.reservation_b)) == ("api", "ui")
    assert (found.overlap_type, found.clash, found.example) == ("partial", "blocks", "src/a/x.ts")
    assert "api came first" in found.suggestion
    assert found.reservation_b.id in found.suggestion


def test_shared_use_is_a_conflict_that_only_warns_and_comes_last(desk: Desk) -> None:
    desk.reserve("api", "src/**", exclusive=False)
    desk.reserve("ui", "src/**", "docs/**")
    desk.reserve("docs", "docs/a", force=True)

    found = reservations.conflicts(desk.book, desk.clock)

    assert [(one.clash, one.overlap_type) for one in found] == [("blocks", "superset"), ("warns", "exact")]
    assert "agree who writes" in found[1].suggestion
    mine = reservations.conflicts(desk.book, desk.clock, agent="docs")
    assert [one.clash for one in mine] == ["blocks"]


def test_one_does_not_conflict_with_oneself_nor_with_what_has_ended(desk: Desk, clock: FakeClock) -> None:
    desk.reserve("ui", "src/**")
    desk.reserve("ui", "src/a")
    desk.reserve("api", "src/**", ttl_s=10, force=True)
    clock.advance(20)

    assert reservations.conflicts(desk.book, desk.clock) == []


# --- whatever happens ------------------------------------------------------------------------------------------------

PATTERNS = ("src/**", "src/*/x", "src/a/*", "docs/*.md", "*.md", "**/x", "{src,docs}/a", "src/a/x")
PATHS = ("src/a/x", "src/b/x", "src/a/y", "docs/a.md", "a.md", "x", "src/a", "docs/a")
moves = st.tuples(
    st.sampled_from(["reserve", "unreserve", "renew", "wait"]),
    st.sampled_from(["ui", "api", "docs"]),
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
    st.booleans(),
)


@given(st.lists(moves, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_no_two_agents_ever_hold_a_path_exclusively(home: Home, clock: FakeClock, history: Any) -> None:
    (home.beads / RESERVATIONS).unlink(missing_ok=True)
    store = Store(home, clock=clock)
    desk = Desk(store, Book(store), clock)
    for verb, agent, patterns, shared in history:
        try:
            if verb == "reserve":
                desk.reserve(agent, *patterns, exclusive=not shared, ttl_s=30)
            elif verb == "unreserve":
                desk.unreserve(agent, *patterns)
            elif verb == "renew":
                desk.renew(agent, *patterns, ttl_s=60)
            else:
                clock.advance(20)
        except (ReservationConflict, NotYours, UnknownRecord):
            pass

        newcomer = Store(home, clock=clock)
        fresh = Book(newcomer)
        held = reservations.reserved(fresh, clock)
        assert held == reservations.reserved(desk.book, clock)
        exclusive = [one for one in held if one.exclusive]
        assert not any(
            owner_of(a) != owner_of(b) and overlaps(parse(a.pattern), parse(b.pattern))
            for a in exclusive
            for b in exclusive
        )
        for path in PATHS:
            holders = {owner_of(one) for one in exclusive if parse(one.pattern).matches(path)}
            assert len(holders) <= 1
            assert desk.allowed("ui", path) == [not holders - {"ui"}]
        newcomer.close()
    store.close()
