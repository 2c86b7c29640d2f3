"""What every command of `queen` shares: the common options, the repository, and how records are shown.

Imports of anything but click happen when a command runs, so that help stays fast.
"""

from __future__ import annotations

from functools import cached_property, update_wrapper
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import msgspec

    from queueyard.kernel.atomic import BadLine
    from queueyard.queen.records import Assignment, Message, Reservation
    from queueyard.queen.service import Queen

_COMMON = (
    click.option("--agent", metavar="NAME", help="Who is calling (else QUEEN_AGENT, or queen config set agent)."),
    click.option("--droid", metavar="NAME", hidden=True, help="Old name of --agent."),
    click.option("--beads-dir", type=click.Path(), metavar="DIR", help="The .beads folder to use."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


class Call:
    """One call of one command: who, where, and how to print."""

    def __init__(self, *, agent: str | None, beads_dir: str | None, as_json: bool) -> None:
        from pathlib import Path  # noqa: PLC0415

        from queueyard.kernel.output import Output  # noqa: PLC0415

        self.agent = agent
        self.beads = Path(beads_dir) if beads_dir else None
        self.as_json = as_json
        self.out = Output(as_json=as_json)

    @cached_property
    def queen(self) -> Queen:
        from queueyard.queen.service import Queen  # noqa: PLC0415

        return Queen.open(agent=self.agent, beads=self.beads)

    def finish(self) -> None:
        """Tell about lines that could not be read, once, and let go of the files."""
        if "queen" in self.__dict__:
            bad = self.queen.bad_lines()
            if bad:
                self.out.warn(f"{_told(bad)}; see: queen doctor")
            self.queen.close()

    # --- showing -----------------------------------------------------------------------------------------------------

    def show(self, value: msgspec.Struct, text: str) -> None:
        """One record: the whole of it as JSON, or one line."""
        from queueyard.queen.records import to_raw  # noqa: PLC0415

        self.out.data(to_raw(value)) if self.as_json else self.out.text(text)

    def show_many(
        self, values: Sequence[msgspec.Struct], columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str
    ) -> None:
        """A list: an array as JSON (an empty one too), or a table, or one sentence if there is nothing."""
        from queueyard.queen.records import to_raw  # noqa: PLC0415

        if self.as_json:
            self.out.data([to_raw(value) for value in values])
        elif values:
            self.out.table(columns, rows)
        else:
            self.out.note(empty)

    def show_messages(self, messages: Sequence[Message], empty: str) -> None:
        rows = [(_mark(one), one.id, one.sender, one.to, self.ago(one.created_at), one.subject) for one in messages]
        self.show_many(messages, ("", "ID", "FROM", "TO", "AGE", "SUBJECT"), rows, empty)

    def show_message(self, message: Message) -> None:
        from queueyard.kernel.output import printable  # noqa: PLC0415
        from queueyard.queen.records import to_raw  # noqa: PLC0415

        if self.as_json:
            self.out.data(to_raw(message))
            return
        facts: list[tuple[str, str | None]] = [
            ("From", message.sender),
            ("To", message.to),
            ("Date", message.created_at),
        ]
        facts += [("Subject", message.subject), ("Issue", message.issue_id), ("Thread", message.thread_id)]
        facts += [("Importance", message.importance), ("Id", message.id)]
        for name, value in facts:
            if value:
                self.out.text(f"{self.out.style(name + ':', 'bold')} {printable(value)}")
        self.out.text(f"\n{printable(message.body)}")

    def show_assignments(self, assignments: Sequence[Assignment], empty: str) -> None:
        from queueyard.queen.rules import owner_of  # noqa: PLC0415

        rows = [
            (one.issue_id, owner_of(one), one.status, self.ago(one.updated_at), one.assigned_by, one.reason)
            for one in assignments
        ]
        self.show_many(assignments, ("ISSUE", "AGENT", "STATUS", "SINCE", "BY", "REASON"), rows, empty)

    def show_reservations(self, reservations: Sequence[Reservation], empty: str) -> None:
        from queueyard.queen.rules import owner_of  # noqa: PLC0415

        rows = [
            (
                one.pattern,
                owner_of(one),
                "exclusive" if one.exclusive else "shared",
                self.ago(one.expires_at),
                one.issue_id,
                one.reason,
            )
            for one in reservations
        ]
        self.show_many(reservations, ("PATTERN", "AGENT", "MODE", "ENDS IN", "ISSUE", "REASON"), rows, empty)

    def ago(self, moment: str) -> str:
        """The distance to now, for people: 5m, 2h 3m; `?` for a time that cannot be read."""
        from queueyard.kernel.clock import SYSTEM_CLOCK, BadTime, format_duration, from_rfc3339  # noqa: PLC0415

        try:
            return format_duration(abs(SYSTEM_CLOCK.now() - from_rfc3339(moment)))
        except BadTime:
            return "?"


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, and a `Call` as its first argument; a flag before the command counts too."""

    @click.pass_context
    def run(
        ctx: click.Context,
        /,
        *args: Any,
        agent: str | None,
        droid: str | None,
        beads_dir: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        above: dict[str, Any] = ctx.obj or {}
        call = Call(
            agent=agent or droid or above.get("agent") or above.get("droid"),
            beads_dir=beads_dir or above.get("beads_dir"),
            as_json=as_json or bool(above.get("as_json")),
        )
        try:
            _refuse_what_is_no_text([call.agent, *options.values()])
            function(call, *args, **options)
        finally:
            call.finish()

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_COMMON):
        wrapped = option(wrapped)
    return wrapped


def common_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same options on the script itself: `queen --agent NAME msg inbox`."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


def text_argument(words: Sequence[str]) -> str:
    """The words joined, or stdin for a single `-`."""
    if list(words) != ["-"]:
        return " ".join(words)
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").strip()
    _refuse_what_is_no_text([text])
    return text


def _refuse_what_is_no_text(values: Iterable[object]) -> None:
    """Bytes that are no UTF-8 come from the command line as lone surrogates, which no JSON can hold."""
    from queueyard.queen.errors import InvalidValue  # noqa: PLC0415

    for value in values:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and not _is_text(text):
                raise InvalidValue(f"not UTF-8 text: {text[:40]!r}", hint="Convert it first: iconv -t UTF-8")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mark(message: Message) -> str:
    urgent = "!" if message.importance in {"high", "urgent"} else ""
    return ("" if message.read else "*") + urgent


def _told(bad: Sequence[BadLine]) -> str:
    return f"{bad[0]}" + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")
