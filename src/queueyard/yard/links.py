"""Which ids an event carries, and which further texts speak of ids. Pure.

`ids` are names that mean one thing in the whole yard: two events that share one belong together. `words` are what
people and agents wrote: an event belongs to an id that occurs in them as a word. Numbers that every place counts anew
(items of jjq, short ids of panqueue) are made whole by the place or queue that they are counted in. Names that many
pieces of work share (agents, concurrency keys, trunk bookmarks, paths) link nothing, nor does the text of messages.
docs/systems/yard.md has the table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.events import Event, System

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ISSUE_THREAD = "issue:"
_WORD = re.compile(r"\w(?:[\w.-]*\w)?")
#: what people type of the id of a change or commit
_SHORTEST_PREFIX = 8


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that carries ids."""

    #: each means one thing in the whole yard
    ids: frozenset[str]
    #: single words of what was written
    words: frozenset[str] = frozenset()
    #: further names that a person may type, though they are not unique
    nicknames: frozenset[str] = frozenset()

    def is_called(self, typed: str) -> bool:
        """Whether a person who types this means it."""
        if typed in self.ids or typed in self.words or typed in self.nicknames:
            return True
        return len(typed) >= _SHORTEST_PREFIX and any(name.startswith(typed) for name in self.ids)


def words_of(*texts: str | None) -> frozenset[str]:
    """The words of some texts; an id with dashes and dots in it is one word."""
    return frozenset(word for text in texts if text for word in _WORD.findall(text))


def link_of(event: Event) -> Link:
    """What ties an event to others."""
    match event.system:
        case System.QUEEN:
            group = (event.group or "").removeprefix(_ISSUE_THREAD)
            return Link(ids=_known(event.item, group))
        case System.RUNFORGE:
            return Link(ids=_known(event.item, event.data.get("run_id"), event.group))
        case System.PANQUEUE:
            whole = f"{event.queue}:{event.item}"
            return Link(ids=_known(whole, None if event.item.isdecimal() else event.item), nicknames=_known(event.item))
        case System.JJQ:
            return _link_of_change(event)
        case System.OPS:
            return Link(ids=_known(event.group), words=words_of(event.data.get("message")))


def _link_of_change(event: Event) -> Link:
    data = event.data
    whole = f"{event.source}#{event.item}"
    again = f"{event.source}#{data['as']}" if "as" in data else None
    nicknames = _known(event.item, event.item.lstrip("0"), f"jjq:{event.item.lstrip('0')}")
    return Link(
        ids=_known(whole, again, data.get("change"), data.get("commit"), data.get("merge")),
        words=words_of(data.get("subject")),
        nicknames=nicknames,
    )


def together(typed: str, links: Iterable[Link]) -> set[int]:
    """Which of the links (by place) belong to what a person means, over any number of steps."""
    everything = list(links)
    by_id, by_word = _places(everything)
    found: set[int] = set()
    new = {place for place, link in enumerate(everything) if link.is_called(typed)}
    while new:
        found |= new
        ids = {name for place in new for name in everything[place].ids}
        words = {word for place in new for word in everything[place].words if _is_telling(word)}
        near = {place for name in ids for place in by_id.get(name, ())}
        near |= {place for name in ids if _is_telling(name) for place in by_word.get(name, ())}
        near |= {place for word in words for place in by_id.get(word, ())}
        new = near - found
    return found


def _places(links: list[Link]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    by_id: dict[str, list[int]] = {}
    by_word: dict[str, list[int]] = {}
    for place, link in enumerate(links):
        for name in link.ids:
            by_id.setdefault(name, []).append(place)
        for word in link.words:
            by_word.setdefault(word, []).append(place)
    return by_id, by_word


def _is_telling(word: str) -> bool:
    """Whether a word of somebody's text may be taken for an id: `qy-1` may, `main` and `12` may not."""
    return any(letter.isdigit() for letter in word) and any(letter.isalpha() for letter in word)


def _known(*names: Any) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str) and name)


def texts_in(value: Any) -> Iterator[str]:
    """Every text in some JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
