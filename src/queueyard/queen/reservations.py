"""The verbs of reservations: reserve, renew, unreserve, reserved, conflicts, check.

Whoever reserves holds the lock from the look to the append, so two agents never hold the same files exclusively.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import BadTime, Clock, from_rfc3339, to_rfc3339
from queueyard.kernel.ids import new_id
from queueyard.queen.errors import CannotTell, NotYours, ReservationConflict, UnknownRecord
from queueyard.queen.glob_index import GlobIndex
from queueyard.queen.globs import BadPattern, Glob, parse, relation, witness
from queueyard.queen.records import Raw, Reservation, ReservationStatus
from queueyard.queen.rules import (
    Clash,
    Conflict,
    check_agent,
    check_period,
    clash_of,
    clashes,
    first_come,
    holds,
    moment_of,
    owner_of,
    with_owner,
)
from queueyard.queen.store import RESERVATIONS, TORN, Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.kernel.atomic import BadLine


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """What was reserved, and which shared or forced overlaps go with it."""

    reserved: list[Reservation]
    warnings: list[str]


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Two reservations of different agents on the same files."""

    #: who came first and should keep the files
    reservation_a: Reservation
    reservation_b: Reservation
    #: how the files of a stand to those of b: exact, superset, subset, partial
    overlap_type: str
    #: "blocks" if both are exclusive, else "warns"
    clash: str
    #: a path that both cover
    example: str
    suggestion: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one path may be edited now."""

    path: str
    allowed: bool
    #: exclusive reservations of others that cover the path
    held_by: list[Reservation]


class Book:
    """The reservations that hold now, ready to be asked by pattern or by path."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._globs: GlobIndex[str] = GlobIndex()

    def refresh(self) -> None:
        changed = self._store.reservations.refresh()
        if changed is None:
            self._globs = GlobIndex()
            changed = [one.id for one in self._store.reservations.all()]
        for identifier in changed:
            with suppress(KeyError):
                self._globs.remove(identifier)
            record = self._store.reservations.get(identifier)
            if record is not None and record.status is ReservationStatus.ACTIVE and not record.released_at:
                glob = glob_of(record)
                if glob is not None:
                    self._globs.add(identifier, glob)

    @property
    def unreadable(self) -> list[BadLine]:
        """Lines that may be reservations; a torn one is none, since nobody was told that it was made."""
        return [line for line in self._store.reservations.bad if line.reason != TORN]

    def overlapping(self, glob: Glob, now: datetime) -> list[Reservation]:
        return self._in_force(self._globs.overlapping(glob), now)

    def covering(self, path: str, now: datetime) -> list[Reservation]:
        return self._in_force(self._globs.matching(path), now)

    def in_force(self, now: datetime) -> list[Reservation]:
        return [one for one in self._store.reservations.all() if holds(one, now)]

    def _in_force(self, identifiers: Sequence[str], now: datetime) -> list[Reservation]:
        found = [self._store.reservations.get(identifier) for identifier in identifiers]
        return [one for one in found if one is not None and holds(one, now)]


def glob_of(reservation: Reservation) -> Glob | None:
    """What it covers. What another tool stored and is no glob stands for the file of exactly that name, if any."""
    pattern = reservation.pattern
    exactly = "".join(f"\\{character}" if character in "\\*?[]{}" else character for character in pattern)
    for text in (pattern, exactly):
        with suppress(BadPattern):
            return parse(text)
    return None


def reserve(
    store: Store,
    book: Book,
    clock: Clock,
    *,
    agent: str,
    patterns: Sequence[str],
    ttl_s: float,
    exclusive: bool = True,
    strict: bool = False,
    force: bool = False,
    issue: str | None = None,
    reason: str | None = None,
) -> Reserved:
    """Reserve all patterns or none. ReservationConflict says who is in the way.

    A pattern that the agent holds already is renewed instead of stacked. `force` reserves in spite of conflicts and
    tells them as warnings.
    """
    check_agent(agent, store.droids())
    globs = {glob.text: glob for glob in map(parse, patterns)}
    with store.locked():
        book.refresh()
        now = clock.now()
        created_at, expires_at = check_period(now, now + timedelta(seconds=ttl_s))
        overlapping = {text: book.overlapping(glob, now) for text, glob in globs.items()}
        found = [
            conflict
            for text, held in overlapping.items()
            for conflict in clashes(text, held, agent=agent, exclusive=exclusive)
        ]
        blocking = [one for one in found if one.clash is Clash.BLOCKS or strict]
        if blocking and not force:
            raise _refusal(blocking)
        raws = []
        for text in globs:
            mine = next((one for one in overlapping[text] if one.pattern == text and owner_of(one) == agent), None)
            raw: Raw = (
                store.reservations.raw(mine.id)
                | {"expires_at": _later(mine.expires_at, expires_at), "renewed_at": created_at}
                if mine
                else {"id": new_id("qr"), "created_at": created_at, "expires_at": expires_at, "pattern": text}
            )
            raw |= {"status": str(ReservationStatus.ACTIVE), "exclusive": exclusive, **with_owner(agent)}
            raw |= {key: value for key, value in (("issue_id", issue), ("reason", reason)) if value}
            raws.append(raw)
        store.append_together(RESERVATIONS, raws, what="reservation")
    return Reserved(
        reserved=[msgspec.convert(raw, Reservation) for raw in raws], warnings=[_told(one) for one in found]
    )


def renew(
    store: Store, book: Book, clock: Clock, *, agent: str, wanted: Sequence[str], ttl_s: float
) -> list[Reservation]:
    """Let reservations of `agent` (patterns or ids; none named: all) hold `ttl_s` from now; never shorter than before.

    UnknownRecord if one is not held any more: it must be reserved again, since others may have come meanwhile.
    """
    with store.locked():
        book.refresh()
        now = clock.now()
        renewed_at, expires_at = check_period(now, now + timedelta(seconds=ttl_s))
        raws = [
            store.reservations.raw(one.id)
            | {"expires_at": _later(one.expires_at, expires_at), "renewed_at": renewed_at}
            | with_owner(owner_of(one))
            for one in _chosen(book.in_force(now), wanted, agent=agent)
        ]
        store.append_together(RESERVATIONS, raws, what="reservation")
    return [msgspec.convert(raw, Reservation) for raw in raws]


def unreserve(
    store: Store, book: Book, clock: Clock, *, agent: str, wanted: Sequence[str], force: bool = False
) -> list[Reservation]:
    """Give reservations back (patterns or ids; none named: all of `agent`); `force` also those of all others."""
    with store.locked():
        book.refresh()
        now = clock.now()
        raws = [
            store.reservations.raw(one.id)
            | {"status": str(ReservationStatus.RELEASED), "released_at": to_rfc3339(now)}
            | with_owner(owner_of(one))
            for one in _chosen(book.in_force(now), wanted, agent=None if force else agent)
        ]
        store.append_together(RESERVATIONS, raws, what="reservation")
    return [msgspec.convert(raw, Reservation) for raw in raws]


def reserved(book: Book, clock: Clock, *, agent: str | None = None, path: str | None = None) -> list[Reservation]:
    """What holds now, soonest to end first; only those of `agent`, only those that cover `path`."""
    book.refresh()
    now = clock.now()
    found = book.in_force(now) if path is None else book.covering(path, now)
    mine = [one for one in found if agent is None or owner_of(one) == agent]
    return sorted(mine, key=lambda one: (moment_of(one.expires_at), one.id))


def conflicts(book: Book, clock: Clock, *, agent: str | None = None) -> list[Overlap]:
    """Every pair of agents on the same files: left by `--force`, by shared use, or by tools that do not lock."""
    book.refresh()
    now = clock.now()
    found: dict[tuple[str, str], Overlap] = {}
    for one in book.in_force(now):
        glob = glob_of(one)
        for other in book.overlapping(glob, now) if glob else []:
            a, b = first_come(one, other)
            clash = clash_of(exclusive=a.exclusive, other_exclusive=b.exclusive)
            concerns = agent is None or agent in {owner_of(a), owner_of(b)}
            if owner_of(a) != owner_of(b) and clash is not Clash.NONE and concerns and (a.id, b.id) not in found:
                found[a.id, b.id] = _overlap(a, b, clash)
    return sorted(found.values(), key=lambda overlap: (overlap.clash, moment_of(overlap.reservation_b.created_at)))


def check(book: Book, clock: Clock, *, agent: str, paths: Sequence[str]) -> list[Verdict]:
    """For each path: may `agent` edit it now? No, if anybody else holds it exclusively.

    CannotTell if a line of the reservations cannot be read: it may be the one that says no.
    """
    book.refresh()
    if book.unreadable:
        raise CannotTell(f"may be held: {book.unreadable[0]}", hint="See: queen doctor    (--fix sets it aside)")
    now = clock.now()
    verdicts = []
    for path in paths:
        others = [one for one in book.covering(path, now) if one.exclusive and owner_of(one) != agent]
        verdicts.append(Verdict(path=path, allowed=not others, held_by=others))
    return verdicts


def _chosen(held: Sequence[Reservation], wanted: Sequence[str], *, agent: str | None) -> list[Reservation]:
    if not wanted:
        return [one for one in held if agent is None or owner_of(one) == agent]
    chosen: list[Reservation] = []
    for text in wanted:
        fits = [one for one in held if text in {one.id, one.pattern} or _same_pattern(text, one.pattern)]
        mine = [one for one in fits if agent is None or owner_of(one) == agent]
        if fits and not mine:
            raise NotYours(f"{text} is held by {owner_of(fits[0])}", hint="Ask them, or use --force.")
        if not mine:
            raise UnknownRecord(f"no reservation {text!r} holds now", hint="See what does: queen reserved")
        chosen += mine
    return list({one.id: one for one in chosen}.values())


def _same_pattern(text: str, pattern: str) -> bool:
    try:
        return parse(text).text == pattern
    except BadPattern:
        return False


def _later(one: str, other: str) -> str:
    try:
        return max(one, other, key=from_rfc3339)
    except BadTime:
        return other


def _refusal(blocking: Sequence[Conflict]) -> ReservationConflict:
    lines = "\n".join(f"  - {_told(one)}" for one in blocking)
    owners = sorted({owner_of(one.held) for one in blocking})
    return ReservationConflict(
        f"nothing was reserved:\n{lines}",
        conflicts=list(blocking),
        hint=f"Wait for it: add --wait 10m    or ask: queen msg send {owners[0]} ...",
    )


def _told(conflict: Conflict) -> str:
    held = conflict.held
    kind = "exclusively" if held.exclusive else "shared"
    why = f" ({held.reason})" if held.reason else ""
    example = _common_path(parse(conflict.pattern), glob_of(held))
    return (
        f"{conflict.pattern}: {owner_of(held)} holds {held.pattern} {kind} until {held.expires_at}{why}; "
        f"both cover {example}"
    )


def _overlap(a: Reservation, b: Reservation, clash: Clash) -> Overlap:
    first, second = owner_of(a), owner_of(b)
    glob_a, glob_b = glob_of(a), glob_of(b)
    if clash is Clash.BLOCKS:
        suggestion = (
            f"{first} came first: {second} should give back {b.pattern} (queen unreserve {b.id} --agent {second}) "
            f"or wait until {a.expires_at}"
        )
    else:
        suggestion = f"{second} and {first} should agree who writes: queen msg send {first} ..."
    return Overlap(
        reservation_a=a,
        reservation_b=b,
        overlap_type=relation(glob_a, glob_b) if glob_a and glob_b else "partial",
        clash=str(clash),
        example=_common_path(glob_a, glob_b),
        suggestion=suggestion,
    )


def _common_path(a: Glob | None, b: Glob | None) -> str:
    return (witness(a, b) if a and b else None) or "-"
