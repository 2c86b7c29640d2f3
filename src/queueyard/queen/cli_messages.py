"""`queen msg ...`: messages on the command line."""

from __future__ import annotations

import click

from queueyard.console import Script, examples
from queueyard.queen.calls import Call, common, text_argument

_SINCE = click.option("--since", metavar="TIME", help="Only newer ones: 2h, 3d, 2026-01-31 or a full time.")
_LIMIT = click.option("-n", "--limit", default=20, show_default=True, help="At most so many; 0 lists all.")


@click.group(cls=Script)
def msg() -> None:
    """Send, list, read, answer and search messages."""


@msg.command(
    epilog=examples(
        "queen msg send ui-engineer 'The API is ready' --issue qb-42",
        "queen msg send @all 'Freeze at noon' -i urgent",
        "git log -1 | queen msg send queen -",
    )
)
@click.argument("to")
@click.argument("body", nargs=-1)
@click.option("-s", "--subject", help="One line; default: the issue, or who it is from.")
@click.option("--issue", metavar="ID", help="The Beads issue that it is about.")
@click.option("-i", "--importance", default="normal", show_default=True, help="low, normal, high or urgent.")
@click.option("--reply-to", metavar="ID", help="The message that it answers.")
@common
def send(
    call: Call,
    to: str,
    body: tuple[str, ...],
    subject: str | None,
    issue: str | None,
    importance: str,
    reply_to: str | None,
) -> None:
    """Send a message to an agent, to "human", or to @all.

    BODY may be several words; a single - reads it from stdin.
    """
    from queueyard.queen.records import to_raw  # noqa: PLC0415

    sent = call.queen.send(
        to, text_argument(body), subject=subject, issue=issue, importance=importance, reply_to=reply_to
    )
    if call.as_json:
        call.out.data(to_raw(sent[0]) if to != "@all" else [to_raw(message) for message in sent])
    else:
        for message in sent:
            call.out.text(f"{message.id} sent to {message.to}")


@msg.command(epilog=examples("queen msg inbox --unread", "queen msg inbox --since 2h --json", "queen msg inbox --mark"))
@click.option("-u", "--unread", is_flag=True, help="Only those that you have not read.")
@_SINCE
@_LIMIT
@click.option("--peek", is_flag=True, help="Show the whole messages, and still mark none of them read.")
@click.option("--mark", is_flag=True, help="Show the whole messages, and mark them read.")
@common
def inbox(call: Call, unread: bool, since: str | None, limit: int, peek: bool, mark: bool) -> None:
    """List the messages to you, newest first. Listing marks nothing read."""
    if peek and mark:
        raise click.UsageError("--peek and --mark contradict each other.")
    found = call.queen.inbox(unread=unread, since=since, limit=limit, mark=mark)
    if (peek or mark) and not call.as_json:
        for number, message in enumerate(found):
            if number:
                call.out.text("\n" + "-" * 60)
            call.show_message(message)
    else:
        call.show_messages(found, "No messages.")


@msg.command(epilog=examples("queen msg wait", "queen msg wait --timeout 10m --from queen --json"))
@click.option("--timeout", metavar="TIME", help="Give up after 30s, 10m, ...; exit code 1. Default: wait for ever.")
@click.option("--from", "sender", metavar="NAME", help="Only messages from this agent count.")
@common
def wait(call: Call, timeout: str | None, sender: str | None) -> None:
    """Return as soon as there is an unread message for you; at once if there is one already."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415

    timeout_s = parse_duration(timeout).total_seconds() if timeout else None
    call.show_messages(call.queen.wait(timeout_s=timeout_s, sender=sender), "")


@msg.command(epilog=examples("queen msg read qm-01HZ1A2B3C4D5E6F7G8H9J0K1L", "queen msg read 0K1L --peek"))
@click.argument("identifier", metavar="ID")
@click.option("--peek", is_flag=True, help="Do not mark it read.")
@common
def read(call: Call, identifier: str, peek: bool) -> None:
    """Show one message, and mark it read if it is yours.

    ID may be the end of the id if that is enough to tell it from your other recent messages.
    """
    call.show_message(call.queen.read(identifier, peek=peek))


@msg.command(epilog=examples("queen msg reply qm-01HZ1A2B3C4D5E6F7G8H9J0K1L 'On it'"))
@click.argument("identifier", metavar="ID")
@click.argument("body", nargs=-1, required=True)
@common
def reply(call: Call, identifier: str, body: tuple[str, ...]) -> None:
    """Answer a message, in its thread."""
    answer = call.queen.reply(identifier, text_argument(body))
    call.show(answer, f"{answer.id} sent to {answer.to}")


@msg.command(epilog=examples("queen msg thread qm-01HZ1A2B3C4D5E6F7G8H9J0K1L", "queen msg thread qb-42"))
@click.argument("key", metavar="ID|ISSUE")
@common
def thread(call: Call, key: str) -> None:
    """Show a conversation, oldest first: by one of its messages, or by its issue."""
    call.show_messages(call.queen.thread(key), "No messages.")


@msg.command()
@_SINCE
@_LIMIT
@common
def sent(call: Call, since: str | None, limit: int) -> None:
    """List the messages from you, newest first."""
    call.show_messages(call.queen.sent(since=since, limit=limit), "No messages.")


@msg.command(epilog=examples("queen msg search button", "queen msg search 'merge conflict' --mine --since 7d"))
@click.argument("text", nargs=-1, required=True)
@click.option("--mine", is_flag=True, help="Only messages from or to you.")
@_SINCE
@_LIMIT
@common
def search(call: Call, text: tuple[str, ...], mine: bool, since: str | None, limit: int) -> None:
    """Find messages by words in their subject or body, archived ones too."""
    call.show_messages(call.queen.search(" ".join(text), mine=mine, since=since, limit=limit), "No messages.")


@msg.command()
@_SINCE
@common
def stats(call: Call, since: str | None) -> None:
    """Count the messages: in all, unread, by recipient, sender and importance."""
    counted = call.queen.stats(since=since)
    if call.as_json:
        call.show(counted, "")
        return
    call.out.text(f"{counted.total} messages, {counted.unread} unread")
    if since:
        call.out.text(f"{counted.since_total} since {counted.since}, {counted.since_unread} unread")
    received, sent_by = counted.by_agent, counted.by_sender
    rows = [(name, received.get(name, 0), sent_by.get(name, 0)) for name in sorted({*received, *sent_by})]
    call.out.table(("AGENT", "RECEIVED", "SENT"), rows)


@msg.command()
@click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
@common
def delete(call: Call, identifiers: tuple[str, ...]) -> None:
    """Hide messages from or to you. The lines stay in the file, marked as deleted."""
    gone = call.queen.delete(*identifiers)
    call.show_many(gone, ("DELETED",), [(message.id,) for message in gone], "")
