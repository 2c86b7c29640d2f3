"""The verbs of messages: send, inbox, read, reply, thread, sent, stats, search, delete.

Each takes the store and the clock. Nothing here prints, and nothing here knows where the files are.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import BadTime, Clock, from_rfc3339, to_rfc3339
from queueyard.kernel.ids import find_id, new_id
from queueyard.queen.errors import InvalidValue, NotYours, UnknownAgent, UnknownRecord
from queueyard.queen.records import Message, Raw, view_or_none
from queueyard.queen.rules import (
    ISSUE_THREAD,
    check_agent,
    check_importance,
    fold,
    moment_of,
    subject_of_reply,
    thread_of,
)
from queueyard.queen.store import MESSAGES, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

EVERYBODY = "@all"
_RECENT = 500


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages there are, and whose."""

    total: int
    unread: int
    by_agent: dict[str, int]
    by_sender: dict[str, int]
    by_importance: dict[str, int]
    #: only those created since, where a time was given
    since: str | None = None
    since_total: int | None = None
    since_unread: int | None = None


def send(
    store: Store,
    clock: Clock,
    *,
    sender: str,
    to: str,
    body: str,
    subject: str | None = None,
    issue: str | None = None,
    importance: str = "normal",
    reply_to: str | None = None,
) -> list[Message]:
    """Send to one agent, or to `@all` but oneself; one message each. When this returns, they are on disk."""
    droids = store.droids()
    check_agent(sender, droids)
    recipients = _everybody_but(sender, store, droids) if to == EVERYBODY else [check_agent(to, droids)]
    parent = find(store, reply_to, near=sender) if reply_to else None
    common: Raw = {
        "created_at": to_rfc3339(clock.now()),
        "from": sender,
        "subject": _one_line(subject) if subject else f"[{issue}]" if issue else f"Message from {sender}",
        "body": body,
        "importance": str(check_importance(importance)),
        "read": False,
    }
    common |= {"issue_id": issue} if issue else {}
    common |= {"reply_to": parent.id, "thread_id": thread_of(parent)} if parent else {}
    raws = [{"id": new_id("qm"), "to": recipient, **common} for recipient in recipients]
    store.append(MESSAGES, raws, what="message")
    return [msgspec.convert(raw, Message) for raw in raws]


def reply(store: Store, clock: Clock, *, sender: str, identifier: str, body: str) -> Message:
    """Answer a message: same issue, same importance, same thread. Answering oneself goes to the other side."""
    parent = find(store, identifier, near=sender)
    sent = send(
        store,
        clock,
        sender=sender,
        to=parent.to if parent.sender == sender else parent.sender,
        body=body,
        subject=subject_of_reply(parent.subject),
        issue=parent.issue_id,
        importance=parent.importance if parent.importance in {"low", "normal", "high", "urgent"} else "normal",
        reply_to=parent.id,
    )
    return sent[0]


def inbox(
    store: Store, *, agent: str, unread: bool = False, since: datetime | None = None, limit: int = 20
) -> list[Message]:
    """Messages to `agent`, newest first; `limit=0` gives all. Marks nothing."""

    def wanted(message: Message) -> bool:
        return message.to == agent and not (unread and message.read)

    return store.messages(
        lambda index: _take(index.received_by(agent, unread=unread), wanted, since=since, limit=limit)
    )


def sent(store: Store, *, agent: str, since: datetime | None = None, limit: int = 20) -> list[Message]:
    """Messages from `agent`, newest first; `limit=0` gives all."""
    return store.messages(
        lambda index: _take(index.sent_by(agent), lambda message: message.sender == agent, since=since, limit=limit)
    )


def read(store: Store, clock: Clock, *, identifier: str, agent: str | None, peek: bool = False) -> Message:
    """One message. It is marked read, once, unless `peek` is asked for or `agent` is known to be somebody else."""
    message = find(store, identifier, near=agent)
    if peek or message.read or (agent is not None and agent != message.to):
        return message
    return mark_read(store, clock, [message])[0]


def mark_read(store: Store, clock: Clock, messages: Sequence[Message]) -> list[Message]:
    """The messages, now read; those that were read before are left as they are."""
    moment = to_rfc3339(clock.now())
    updates = {
        message.id: {**_raw(store, message.id), "read": True, "read_at": moment}
        for message in messages
        if not message.read
    }
    if updates:
        store.append(MESSAGES, updates.values(), what="message", is_update=True)
    return [msgspec.convert(updates[message.id], Message) if message.id in updates else message for message in messages]


def delete(store: Store, clock: Clock, *, identifiers: Sequence[str], agent: str) -> list[Message]:
    """Hide messages for good; sender and recipient may. The lines stay in the file, marked."""
    found = [find(store, identifier, near=agent) for identifier in identifiers]
    for message in found:
        if agent not in {message.sender, message.to}:
            raise NotYours(
                f"{message.id} is between {message.sender} and {message.to}", hint=f"--agent {message.sender}"
            )
    moment = to_rfc3339(clock.now())
    updates = [{**_raw(store, message.id), "deleted": True, "deleted_at": moment} for message in found]
    store.append(MESSAGES, updates, what="message", is_update=True)
    return [msgspec.convert(raw, Message) for raw in updates]


def thread(store: Store, key: str, *, near: str | None = None) -> list[Message]:
    """A conversation, oldest first: by any of its messages, by its thread id, by `issue:<id>` or by the issue.

    Archived messages belong to it too.
    """
    named = store.messages(lambda index: index.get(key))
    message = view_or_none(named, Message) if named else None
    found = _of_thread(store, thread_of(message) if message else key)
    if not found:
        found = _of_thread(store, thread_of(find(store, key, near=near)))
    return sorted(found, key=lambda message: (moment_of(message.created_at), message.id))


def stats(store: Store, *, since: datetime | None = None) -> Stats:
    """Counts over all messages that are not deleted."""
    views = [view_or_none(raw, Message) for raw in store.every_message(lambda _: None).values()]
    alive = [message for message in views if message is not None and not message.deleted]
    recent = [message for message in alive if since and _is_since(message, since)]
    return Stats(
        total=len(alive),
        unread=sum(not message.read for message in alive),
        by_agent=_counted(message.to for message in alive),
        by_sender=_counted(message.sender for message in alive),
        by_importance=_counted(message.importance for message in alive),
        since=to_rfc3339(since) if since else None,
        since_total=len(recent) if since else None,
        since_unread=sum(not message.read for message in recent) if since else None,
    )


def search(
    store: Store, text: str, *, agent: str | None = None, since: datetime | None = None, limit: int = 20
) -> list[Message]:
    """Messages whose subject or body holds the text, in any case, newest first; archived ones too."""
    wanted = text.casefold()
    if not wanted.strip():
        raise InvalidValue("nothing to search for", hint="For example: queen msg search button")
    raws = _archived(store)
    for identifier, raw in store.every_message(lambda _: None).items():
        raws[identifier] = fold(raws.get(identifier), raw)

    def is_hit(message: Message) -> bool:
        concerns = agent is None or agent in {message.sender, message.to}
        return concerns and (wanted in message.subject.casefold() or wanted in message.body.casefold())

    hits = [raw for raw in raws.values() if (message := view_or_none(raw, Message)) and is_hit(message)]
    newest_first = sorted(hits, key=lambda raw: (moment_of(str(raw.get("created_at"))), raw["id"]), reverse=True)
    return _take(newest_first, is_hit, since=since, limit=limit)


def find(store: Store, typed: str, *, near: str | None) -> Message:
    """The message that `typed` names: its id, or enough of it to be the only recent one of agent `near`.

    UnknownRecord if there is none, or if it was deleted.
    """
    raw = store.messages(lambda index: index.get(typed))
    if raw is None or not raw.get("to"):
        raw = store.archived_message(typed) or raw
    if raw is None and near:
        meant = find_id(typed, [message.id for message in _recent(store, near)])
        if len(meant) > 1:
            raise UnknownRecord(
                f"{typed!r} may be {len(meant)} messages: {', '.join(meant[:3])} ...", hint="Type more of the id."
            )
        raw = store.messages(lambda index: index.get(meant[0])) if meant else None
    message = view_or_none(raw, Message) if raw else None
    if message is None or message.deleted:
        raise UnknownRecord(f"no message {typed!r}", hint="List yours: queen msg inbox")
    return message


def _recent(store: Store, agent: str) -> list[Message]:
    return inbox(store, agent=agent, limit=_RECENT) + sent(store, agent=agent, limit=_RECENT)


def _raw(store: Store, identifier: str) -> Raw:
    """The folded record with every key it has, also those of other tools. UnknownRecord if it is gone."""
    raw = store.messages(lambda index: index.get(identifier)) or store.archived_message(identifier)
    if raw is None:
        raise UnknownRecord(f"no message {identifier!r} any more", hint="List yours: queen msg inbox")
    return raw


def _archived(store: Store) -> dict[str, Raw]:
    """Every archived message, folded."""
    folded: dict[str, Raw] = {}
    for raw in store.archived(MESSAGES):
        folded[raw["id"]] = fold(folded.get(raw["id"]), raw)
    return folded


def _of_thread(store: Store, key: str) -> list[Message]:
    issue = key.removeprefix(ISSUE_THREAD)
    raws = store.messages(
        lambda index: [
            *index.in_thread(key),
            *index.in_thread(ISSUE_THREAD + issue),
            *index.about(issue),
            *filter(None, [index.get(key)]),
        ]
    )
    belongs = (key, ISSUE_THREAD + issue)
    old = {
        identifier: raw
        for identifier, raw in _archived(store).items()
        if identifier == key or raw.get("issue_id") == issue or raw.get("thread_id") in belongs
    }
    since = store.messages(lambda index: {identifier: index.get(identifier) or {} for identifier in old})
    everything = {raw["id"]: raw for raw in raws} | {key: fold(raw, since[key]) for key, raw in old.items()}
    views = {identifier: view_or_none(raw, Message) for identifier, raw in everything.items()}
    return [
        message
        for message in views.values()
        if message
        and not message.deleted
        and (message.thread_id in belongs or message.issue_id == issue or (message.id == key and not message.reply_to))
    ]


def _take(
    raws: Iterable[Raw], wanted: Callable[[Message], bool], *, since: datetime | None, limit: int
) -> list[Message]:
    """The first `limit` (0: all) that are wanted, out of records that come newest first."""
    if limit < 0:
        raise InvalidValue("the limit cannot be negative", hint="--limit 0 lists all")

    def chosen() -> Iterable[Message]:
        for raw in raws:
            message = view_or_none(raw, Message)
            if message is None or message.deleted or not wanted(message):
                continue
            if since and not _is_since(message, since):
                return
            yield message

    return list(islice(chosen(), limit or None))


def _is_since(message: Message, since: datetime) -> bool:
    try:
        return from_rfc3339(message.created_at) >= since
    except BadTime:
        return False


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _everybody_but(sender: str, store: Store, droids: set[str] | None) -> list[str]:
    known = droids if droids is not None else store.messages(lambda index: index.agents())
    others = sorted(known - {sender})
    if not others:
        raise UnknownAgent("there is nobody else to send to", hint="Add droids to .factory/droids/, or name one.")
    return others


def _one_line(subject: str) -> str:
    return " ".join(subject.split())
