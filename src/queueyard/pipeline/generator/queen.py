"""A repository in which agents work: who works on what, who told whom, and who holds which files.

    queen/.beads/queen_messages.jsonl  queen_assignments.jsonl  queen_reservations.jsonl

Changes are written as whole records and as the changed fields alone, as the tools of the format do both; fields are
cleared with null. The records of some issues arrive long after they were made, as git brings them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.kernel.ids import derived_ulid
from queueyard.pipeline.generator.chance import (
    DAY,
    HOUR,
    MINUTE,
    START,
    Agenda,
    Skewed,
    arrivals,
    clock_error,
    moment,
    per_second,
    run_time,
    text,
)
from queueyard.pipeline.generator.writing import OF_RECORDS, Budget, Stream, StreamCount
from queueyard.queen.records import AssignmentStatus, Importance, Raw, ReservationStatus, encode

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

_LINES_PER_ISSUE = 13.0
_NAMES = ("messages", "assignments", "reservations")
#: as many as so few agents may have in hand: more of them would hold the same files by the thousand
_MOST_ISSUES_PER_SECOND = 0.05
_AGENTS = Skewed([f"agent-{number:02d}" for number in range(1, 16)], by=0.7)
_IMPORTANCE = Skewed((Importance.NORMAL, Importance.HIGH, Importance.LOW, Importance.URGENT))
_SUBJECTS = ("Ready for review", "Blocked by the schema", "Wer hält src/app?", "Build is red", "Question about the API")
_BODIES = (
    "Please have a look.",
    "The test fails on **main** since this morning:\n\n```\nassert 1 == 2\n```\n",
    "Fertig; ich gebe die Dateien frei.",
    "See the issue.",
)
_PATTERNS = Skewed(
    [
        *(f"src/{name}/**" for name in ("app", "queue", "ui", "store", "kernel", "docs", "api", "jobs")),
        "README.md",
        "pyproject.toml",
        "tests/test_{a,b}*.py",
    ]
)
_MIGRATION = encode({"_migration": "v1_to_v2", "at": text(START)})


def write(folder: Path, lines: int, random: Random) -> list[StreamCount]:
    budget = Budget(lines)
    home = folder / "queen" / ".beads"
    streams = {
        name: Stream(f"queen.{name}", home / f"queen_{name}.jsonl", random=random, budget=budget, flaws=OF_RECORDS)
        for name in _NAMES
    }
    team = _Team(streams, random)
    for at in arrivals(random, per_second(lines / _LINES_PER_ISSUE, most=_MOST_ISSUES_PER_SECOND)):
        team.agenda.run_until(at)
        if budget.left <= 0:
            break
        team.take_up(at)
    return [stream.close() for stream in streams.values()]


class _Team:
    def __init__(self, streams: dict[str, Stream], random: Random) -> None:
        self.agenda = Agenda()
        self._streams = streams
        self._random = random
        self._issues = self._records = 0
        #: how much later the records of the current issue are seen, and how far its clock is ahead
        self._delay = self._error = 0
        for stream in streams.values():
            stream.write(_MIGRATION)

    def take_up(self, at: int) -> None:
        """An agent takes an issue up; everything that will be written about it is decided now."""
        random = self._random
        self._issues += 1
        self._delay = int(random.random() * DAY) if random.random() < 0.02 else 0
        self._error = clock_error(random, self._issues)
        issue = f"bd-{self._issues}"
        agent = _AGENTS.pick(random)
        end = at + run_time(random, 1_800.0)
        self._assign(at, end, issue, agent, previous=None)
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            self._reserve(at + int(random.random() * MINUTE), end, issue, agent)
        self._talk(at, issue, agent)

    # --- assignments -------------------------------------------------------------------------------------------------

    def _assign(self, at: int, end: int, issue: str, agent: str, *, previous: str | None) -> None:
        random = self._random
        record: Raw = {
            **self._new("qa", at),
            "updated_at": self._text(at),
            "issue_id": issue,
            "agent": agent,
            "droid": agent,
            "assigned_by": agent if random.random() < 0.6 else "queen",
            "status": AssignmentStatus.ACTIVE,
            "worktree": f"../wt-{issue}",
        }
        if previous is not None:
            record |= {"previous_agent": previous, "previous_droid": previous, "reason": "taken over"}
        self._write("assignments", at, record)
        dice = random.random()
        if dice < 0.10 and previous is None:
            other = _AGENTS.pick(random)
            self._change("assignments", end, record, status=AssignmentStatus.REASSIGNED, updated_at=self._text(end))
            self._assign(end, end + HOUR, issue, other, previous=agent)
        elif dice < 0.20:
            changes: Raw = {"status": AssignmentStatus.RELEASED, "reason": "blocked", "worktree": None}
            self._change("assignments", end, record, updated_at=self._text(end), **changes)
        elif dice < 0.95:
            self._change("assignments", end, record, status=AssignmentStatus.COMPLETED, updated_at=self._text(end))

    # --- reservations ------------------------------------------------------------------------------------------------

    def _reserve(self, at: int, end: int, issue: str, agent: str) -> None:
        random = self._random
        expires = at + HOUR
        record: Raw = {
            **self._new("qr", at),
            "expires_at": self._text(expires),
            "pattern": _PATTERNS.pick(random),
            "agent": agent,
            "droid": agent,
            "issue_id": issue,
            "status": ReservationStatus.ACTIVE,
            "exclusive": random.random() < 0.8,
            "reason": "editing",
        }
        self._write("reservations", at, record)
        for _ in range(5):
            renewed = expires - 5 * MINUTE
            if renewed > end:
                break
            expires += HOUR
            times = {"expires_at": self._text(expires), "renewed_at": self._text(renewed)}
            record = self._change("reservations", renewed, record, **times)
        dice = random.random()
        if end < expires and dice < 0.8:
            gone: Raw = {"status": ReservationStatus.RELEASED, "released_at": self._text(end)}
            self._change("reservations", end, record, **gone, **({"reason": None} if dice < 0.1 else {}))
        elif dice < 0.9:
            self._change("reservations", expires + MINUTE, record, status=ReservationStatus.EXPIRED)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _talk(self, at: int, issue: str, agent: str) -> None:
        """A thread about the issue: each message answers the one before."""
        random = self._random
        sender, recipient = agent, _AGENTS.pick(random)
        before: Raw | None = None
        for _ in range(random.choice((0, 1, 2, 2, 3, 5))):
            before = self._send(at, issue, sender, recipient, before)
            sender, recipient = recipient, sender
            at += run_time(random, 600.0)

    def _send(self, at: int, issue: str, sender: str, recipient: str, before: Raw | None) -> Raw:
        random = self._random
        record: Raw = {
            **self._new("qm", at),
            "from": sender,
            "to": recipient,
            "subject": f"Re: {before['subject']}".replace("Re: Re: ", "Re: ") if before else random.choice(_SUBJECTS),
            "body": random.choice(_BODIES),
            "issue_id": issue,
            "importance": _IMPORTANCE.pick(random),
            "read": False,
        }
        if before is not None:
            record |= {"reply_to": before["id"], "thread_id": before.get("thread_id", before["id"])}
        self._write("messages", at, record)
        dice = random.random()
        now = record
        if dice < 0.85:
            read = at + run_time(random, 300.0)
            now = self._change("messages", read, now, read=True, read_at=self._text(read))
            if dice < 0.10:
                now = self._change("messages", read + MINUTE, now, read=False, read_at=None)
        if 0.10 <= dice < 0.16:
            hidden = at + 2 * DAY
            self._change("messages", hidden, now, deleted=True, deleted_at=self._text(hidden))
        return record

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _new(self, prefix: str, at: int) -> Raw:
        self._records += 1
        made = moment(at + self._error)
        return {"id": f"{prefix}-{derived_ulid(made, prefix, str(self._records))}", "created_at": self._text(at)}

    def _change(self, name: str, at: int, record: Raw, **fields: object) -> Raw:
        """Write a change, as a whole record or as the changed fields; gives the record after it."""
        after = record | fields
        whole = self._random.random() < 0.5
        self._write(name, at, after if whole else {"id": record["id"], **fields})
        return after

    def _write(self, name: str, at: int, line: Raw) -> None:
        self.agenda.add(at + self._delay, self._put, name, encode(line))

    def _put(self, _at: int, name: str, line: bytes) -> None:
        self._streams[name].write(line)

    def _text(self, at: int) -> str:
        return text(at + self._error)
