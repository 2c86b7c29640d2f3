"""`Queen`: every verb of the command line as a method, for programs.

    from queueyard.queen import Queen

    with Queen.open(agent="ui-engineer") as queen:
        queen.reserve(["src/ui/**"], ttl="30m")

All methods are synchronous. They return records and raise the errors of `queueyard.queen.errors`. One object may be
used for long: it notices what other processes write. It is not meant to be shared between threads.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, parse_since
from queueyard.queen import messages
from queueyard.queen.errors import ReservationConflict, TimedOut
from queueyard.queen.home import Home, find_home, relative_path
from queueyard.queen.records import Assignment, AssignmentStatus, Message, Reservation
from queueyard.queen.rules import check_agent, check_status
from queueyard.queen.settings import QueenSettings, identity, load, parse_ttl
from queueyard.queen.store import MESSAGES, Store
from queueyard.queen.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from queueyard.kernel.atomic import BadLine
    from queueyard.kernel.settings import Settled
    from queueyard.queen import assignments, reservations
    from queueyard.queen.assignments import Next
    from queueyard.queen.messages import Stats
    from queueyard.queen.reservations import Book, Overlap, Reserved, Verdict
else:

    class _OnDemand:
        """A module that is imported when first used: whoever reads mail need not wait for the globs."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    assignments = _OnDemand("queueyard.queen.assignments")
    reservations = _OnDemand("queueyard.queen.reservations")


class Queen:
    """One agent's view of one repository."""

    def __init__(
        self, home: Home, settled: Settled[QueenSettings], *, cwd: Path | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.home = home
        self.settings = settled.values
        self.origin = settled.origin
        self.store = Store(home, clock=clock, lock_timeout_s=settled.values.lock_timeout_s)
        self.store.finish_interrupted()
        self._cwd = cwd or home.root
        self.clock = clock

    @classmethod
    def open(
        cls,
        start: Path | None = None,
        *,
        agent: str | None = None,
        beads: Path | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Find the repository around `start` (default: the current folder). NoBeads if there is none."""
        variables = os.environ if environment is None else environment
        where = (start or Path.cwd()).absolute()
        home = find_home(where, variables, beads=beads)
        return cls(home, load(home.beads, variables, agent=agent), cwd=where, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    @property
    def agent(self) -> str:
        """Who is calling. NoIdentity if nobody said, UnknownAgent if there is no such droid."""
        return check_agent(identity(self.settings), self.store.droids())

    @cached_property
    def book(self) -> Book:
        """The reservations that hold now."""
        return reservations.Book(self.store)

    def droids(self) -> list[str] | None:
        """The droids of the repository; None where it has no `.factory/droids/`."""
        found = self.store.droids()
        return None if found is None else sorted(found)

    # --- messages ----------------------------------------------------------------------------------------------------

    def send(
        self,
        to: str,
        body: str,
        *,
        subject: str | None = None,
        issue: str | None = None,
        importance: str = "normal",
        reply_to: str | None = None,
    ) -> list[Message]:
        """Send to one agent or to `@all`."""
        return messages.send(
            self.store,
            self.clock,
            # Not self.agent: sending looks both names up among the droids itself, and once is enough.
            sender=identity(self.settings),
            to=to,
            body=body,
            subject=subject,
            issue=issue,
            importance=importance,
            reply_to=reply_to,
        )

    def reply(self, identifier: str, body: str) -> Message:
        return messages.reply(self.store, self.clock, sender=self.agent, identifier=identifier, body=body)

    def inbox(
        self, *, unread: bool = False, since: str | None = None, limit: int = 20, mark: bool = False
    ) -> list[Message]:
        """Messages to the caller, newest first; `mark` marks those that are listed as read."""
        found = messages.inbox(self.store, agent=self.agent, unread=unread, since=self._since(since), limit=limit)
        return messages.mark_read(self.store, self.clock, found) if mark else found

    def wait(self, *, timeout_s: float | None = None, sender: str | None = None) -> list[Message]:
        """The unread messages as soon as there are any. TimedOut if none came in time."""
        agent = self.agent

        def arrived() -> list[Message]:
            found = messages.inbox(self.store, agent=agent, unread=True, limit=0)
            return [message for message in found if sender in {None, message.sender}]

        found = wait_until(arrived, self.home.beads / MESSAGES, timeout_s=timeout_s, clock=self.clock)
        if not found:
            raise TimedOut(f"no message for {agent} within {timeout_s:g} s", hint="Look again: queen msg inbox")
        return found

    def read(self, identifier: str, *, peek: bool = False) -> Message:
        """One message, marked read if it is to the caller, or if nobody said who is calling."""
        return messages.read(
            self.store, self.clock, identifier=identifier, agent=self.settings.agent or None, peek=peek
        )

    def thread(self, key: str) -> list[Message]:
        """A conversation, oldest first, by message, thread, `issue:<id>` or issue."""
        return messages.thread(self.store, key, near=self.settings.agent)

    def sent(self, *, since: str | None = None, limit: int = 20) -> list[Message]:
        return messages.sent(self.store, agent=self.agent, since=self._since(since), limit=limit)

    def stats(self, *, since: str | None = None) -> Stats:
        return messages.stats(self.store, since=self._since(since))

    def search(self, text: str, *, mine: bool = False, since: str | None = None, limit: int = 20) -> list[Message]:
        agent = self.agent if mine else None
        return messages.search(self.store, text, agent=agent, since=self._since(since), limit=limit)

    def delete(self, *identifiers: str) -> list[Message]:
        return messages.delete(self.store, self.clock, identifiers=identifiers, agent=self.agent)

    # --- assignments -------------------------------------------------------------------------------------------------

    def assign(self, issue: str, agent: str, *, worktree: str | None = None, reason: str | None = None) -> Assignment:
        """Give an issue to an agent, taking it from whoever holds it."""
        return assignments.assign(
            self.store,
            self.clock,
            issue=issue,
            agent=agent,
            by=self.agent,
            worktree=worktree,
            reason=reason,
            check_issues=self.settings.check_issues,
        )

    def claim(
        self, issue: str, *, take: bool = False, worktree: str | None = None, reason: str | None = None
    ) -> Assignment:
        """Take an issue for oneself. AlreadyHeld if another agent holds it, unless `take`."""
        return assignments.assign(
            self.store,
            self.clock,
            issue=issue,
            agent=self.agent,
            by=self.agent,
            take=take,
            worktree=worktree,
            reason=reason,
            check_issues=self.settings.check_issues,
        )

    def next(self, *, worktree: str | None = None) -> Next | None:
        """Claim the best ready issue; None if there is none."""
        return assignments.next_issue(self.store, self.clock, agent=self.agent, worktree=worktree)

    def release(self, issue: str, *, reason: str | None = None, force: bool = False) -> Assignment:
        return self._settle(issue, AssignmentStatus.RELEASED, reason=reason, force=force)

    def complete(self, issue: str, *, reason: str | None = None, force: bool = False) -> Assignment:
        return self._settle(issue, AssignmentStatus.COMPLETED, reason=reason, force=force)

    def assignments(
        self, *, agent: str | None = None, issue: str | None = None, status: str | None = None
    ) -> list[Assignment]:
        wanted = check_status(status) if status else None
        return assignments.listed(self.store, agent=agent, issue=issue, status=wanted)

    # --- reservations ------------------------------------------------------------------------------------------------

    def reserve(
        self,
        patterns: Sequence[str],
        *,
        ttl: str | None = None,
        shared: bool = False,
        strict: bool | None = None,
        force: bool = False,
        issue: str | None = None,
        reason: str | None = None,
        wait_s: float = 0.0,
    ) -> Reserved:
        """Reserve all patterns or none; waits up to `wait_s` for others to give them back."""
        agent = self.agent
        ttl_s = parse_ttl(ttl or self.settings.ttl)
        wanted = [self._relative(pattern) for pattern in patterns]
        refused: list[ReservationConflict] = []

        def attempt() -> Reserved | None:
            try:
                return reservations.reserve(
                    self.store,
                    self.book,
                    self.clock,
                    agent=agent,
                    patterns=wanted,
                    ttl_s=ttl_s,
                    exclusive=not shared,
                    strict=self.settings.strict if strict is None else strict,
                    force=force,
                    issue=issue,
                    reason=reason,
                )
            except ReservationConflict as conflict:
                refused.append(conflict)
                return None

        done = wait_until(attempt, self.store.reservations.path, timeout_s=wait_s, clock=self.clock, recheck_s=1.0)
        if done is None:
            raise refused[-1]
        return done

    def renew(self, *wanted: str, ttl: str | None = None) -> list[Reservation]:
        """Patterns or ids; without any, everything that the caller holds."""
        ttl_s = parse_ttl(ttl or self.settings.ttl)
        return reservations.renew(
            self.store, self.book, self.clock, agent=self.agent, wanted=self._relatives(wanted), ttl_s=ttl_s
        )

    def unreserve(self, *wanted: str, force: bool = False) -> list[Reservation]:
        """Patterns or ids; without any, everything that the caller holds."""
        return reservations.unreserve(
            self.store, self.book, self.clock, agent=self.agent, wanted=self._relatives(wanted), force=force
        )

    def reserved(self, *, agent: str | None = None, path: str | None = None) -> list[Reservation]:
        covered = self._relative(path) if path is not None else None
        return reservations.reserved(self.book, self.clock, agent=agent, path=covered)

    def conflicts(self, *, mine: bool = False) -> list[Overlap]:
        return reservations.conflicts(self.book, self.clock, agent=self.agent if mine else None)

    def check(self, *paths: str) -> list[Verdict]:
        """May the caller edit these paths now? Writes nothing."""
        return reservations.check(self.book, self.clock, agent=self.agent, paths=self._relatives(paths))

    # --- the files ---------------------------------------------------------------------------------------------------

    def bad_lines(self) -> list[BadLine]:
        """Lines in the three files that nobody can read, as far as they were looked at."""
        return self.store.bad_lines()

    def _settle(self, issue: str, status: AssignmentStatus, *, reason: str | None, force: bool) -> Assignment:
        return assignments.settle(
            self.store, self.clock, issue=issue, agent=self.agent, status=status, reason=reason, force=force
        )

    def _since(self, text: str | None) -> datetime | None:
        return parse_since(text, self.clock.now()) if text else None

    def _relative(self, text: str) -> str:
        return relative_path(text, self.home, self._cwd)

    def _relatives(self, texts: Sequence[str]) -> list[str]:
        return [self._relative(text) for text in texts]
