"""Many patterns, and the question which of them overlap one more. Pure, like globs.py.

The answer is the same as asking `overlaps` of each, without doing so. Patterns are filed under the names that stand
before their first wildcard, their head. A candidate is compared with those heads only that lie above or below its
own. Its automaton walks each head once, and then it matters only in which states it is and how the pattern goes on.
Most patterns of a large set go on in one of a few ways, such as `**/*.test.ts`, so that most decisions are made once
per question. Whole directories (`src/**`), the most common of all, overlap wherever the automaton is still alive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from queueyard.queen.glob_machine import Machine, WildName
from queueyard.queen.globs import Branch, Glob, clean_path, names_in, names_of_rest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

K = TypeVar("K", bound=Hashable)
EntryT = TypeVar("EntryT")

_WHOLE_DIRECTORY = "**"
#: The character behind the slash: what lies below `a` sorts from "a/" up to, but not including, "a0".
_BEHIND_SLASH = "0"


class GlobIndex(Generic[K]):
    """Patterns by key. Answers list the keys in the order in which they were added."""

    def __init__(self) -> None:
        self._added = 0
        # Patterns are known by number inside: small to hash, and in order when sorted.
        self._numbered: dict[K, tuple[int, Glob]] = {}
        self._keys: dict[int, K] = {}
        self._directories: _Shelf[int] = _Shelf()
        self._others: _Shelf[tuple[int, str]] = _Shelf()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: K, glob: Glob) -> None:
        """File the pattern under the key, in place of the one that was there."""
        if key in self._numbered:
            self.remove(key)
        number = self._added
        self._added += 1
        self._numbered[key] = number, glob
        self._keys[number] = key
        for head, rest in glob.branches:
            if rest == _WHOLE_DIRECTORY:
                self._directories.put(head, number)
            else:
                self._others.put(head, (number, rest))

    def remove(self, key: K) -> None:
        """Forget the key. KeyError if it is not there."""
        number, glob = self._numbered.pop(key)
        del self._keys[number]
        for head, rest in glob.branches:
            if rest == _WHOLE_DIRECTORY:
                self._directories.take(head, number)
            else:
                self._others.take(head, (number, rest))

    def overlapping(self, glob: Glob) -> list[K]:
        """The keys of all patterns that share a path with this one."""
        return self._answer(_Question(glob.machine), glob.branches)

    def matching(self, path: str) -> list[K]:
        """The keys of all patterns that match the path. BadPattern if it leads out of the repository."""
        clean = clean_path(path)
        return self._answer(_Question(Machine([names_in(clean)])), [Branch(clean, "")])

    def _answer(self, question: _Question, branches: Collection[Branch]) -> list[K]:
        hits: set[int] = set()
        for head in {above for branch in branches for above in _prefixes(branch.head)}:
            if question.states_behind(head):
                hits.update(self._directories.at(head))
                hits.update(_met(question, [(head, self._others.at(head))]))
        for head in _outermost(branch.head for branch in branches if branch.rest):
            below = self._directories.below(head)
            if question.lives_below(head):
                hits.update(chain.from_iterable(numbers for _, numbers in below))
            else:
                hits.update(chain.from_iterable(numbers for at, numbers in below if question.states_behind(at)))
            hits.update(_met(question, self._others.below(head)))
        return [self._keys[number] for number in sorted(hits)]


def _met(question: _Question, filed: Iterable[tuple[str, Sequence[tuple[int, str]]]]) -> Iterator[int]:
    for head, entries in filed:
        states = question.states_behind(head)
        if states:
            for number, rest in entries:
                if question.is_met(states, rest):
                    yield number


class _Shelf(Generic[EntryT]):
    """Entries by head, and the heads in order."""

    def __init__(self) -> None:
        self._filed: dict[str, list[EntryT]] = {}
        # Sorted when a question needs it: one sort after many additions costs less than as many insertions.
        self._heads: list[str] = []
        self._is_sorted = True

    def put(self, head: str, entry: EntryT) -> None:
        filed = self._filed.get(head)
        if filed is None:
            self._filed[head] = [entry]
            self._heads.append(head)
            self._is_sorted = False
        else:
            filed.append(entry)

    def take(self, head: str, entry: EntryT) -> None:
        filed = self._filed[head]
        filed.remove(entry)
        if not filed:
            del self._filed[head]
            self._sort()
            del self._heads[bisect_left(self._heads, head)]

    def at(self, head: str) -> Sequence[EntryT]:
        return self._filed.get(head, ())

    def below(self, head: str) -> Iterable[tuple[str, Sequence[EntryT]]]:
        """All heads that begin with this one and a slash, with what is filed there."""
        self._sort()
        heads = self._heads
        if head:
            first = bisect_left(heads, f"{head}/")
            heads = heads[first : bisect_left(heads, f"{head}{_BEHIND_SLASH}", first)]
        return zip(heads, map(self._filed.__getitem__, heads), strict=True)

    def _sort(self) -> None:
        if not self._is_sorted:
            self._heads.sort()
            self._is_sorted = True


class _Question:
    """A candidate's automaton, with everything that it has answered so far."""

    def __init__(self, machine: Machine[WildName]) -> None:
        self._machine = machine
        self._behind = {"": machine.start}
        self._accepted: dict[str, int] = {}
        self._met: dict[tuple[int, str], bool] = {}

    def states_behind(self, head: str) -> int:
        """The states of the automaton after the names of the head; 0 if no path of it begins so."""
        unknown = []
        states = self._behind.get(head)
        while states is None:
            above, _, name = head.rpartition("/")
            unknown.append((head, name))
            head = above
            states = self._behind.get(head)
        for further, name in reversed(unknown):
            # No state leads nowhere and a sink takes everything: either way the name makes no difference.
            if states and not states & self._machine.sink:
                states = self._machine.step(states, self._accepted_of(name))
            self._behind[further] = states
        return states

    def lives_below(self, head: str) -> bool:
        """Whether every path below the head is begun by some path of the automaton."""
        return bool(self.states_behind(head) & self._machine.loops)

    def is_met(self, states: int, rest: str) -> bool:
        """Whether some path goes on from the states and matches the rest of a pattern."""
        met = self._met.get((states, rest))
        if met is None:
            met = self._met[states, rest] = self._machine.meets(names_of_rest(rest), states)
        return met

    def _accepted_of(self, name: str) -> int:
        accepted = self._accepted.get(name)
        if accepted is None:
            accepted = self._accepted[name] = self._machine.accepted(name)
        return accepted


def _prefixes(head: str) -> Iterator[str]:
    """The root, each directory on the way, and the head itself."""
    yield ""
    cut = head.find("/")
    while cut >= 0:
        yield head[:cut]
        cut = head.find("/", cut + 1)
    if head:
        yield head


def _outermost(heads: Iterable[str]) -> list[str]:
    """The heads that lie below no other of them."""
    distinct = set(heads)
    return [head for head in distinct if not any(above in distinct for above in _prefixes(head) if above != head)]
