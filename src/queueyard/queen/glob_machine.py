"""The automata behind glob patterns. It knows neither their syntax nor paths, and nothing here fails on valid input.

A pattern is read on two levels. A path is a row of names, among which `**` stands for any names; a name is a row of
characters, among which `*` stands for any characters. On both levels an atom is one of three things: an exact text
(`str`), a wildcard for one letter of that level (`CharSet` or `WildName`), or `None` for a loop over any letters.
So one `Machine` serves both levels.

A set of states is one integer with a bit per state. Asking whether two patterns share a text takes one pass over
the first with a handful of integer operations per atom, however many stars they hold.

Callers keep two promises: loops never stand side by side, and every wildcard accepts at least one text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Ranges = tuple[tuple[int, int], ...]

#: Names that a clean path never holds, so that two patterns which share only these share nothing.
NO_NAMES = frozenset({"", ".", ".."})

_LAST_CODE = 0x10FFFF
_SLASH = ord("/")
_DOT = ord(".")
#: Every character of a name: neither NUL nor the slash.
_ALPHABET: Ranges = ((1, _SLASH - 1), (_SLASH + 1, _LAST_CODE))
#: A witness is read by people, so it takes the first of these that fits.
_READABLE = "xabcdefghijklmnopqrstuvwyz0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Wildcard(Protocol):
    """What stands for exactly one letter: a character of a name, or a name of a path."""

    def __hash__(self) -> int: ...
    def accepts(self, exact: str, /) -> bool: ...
    def meets(self, other: Self, /) -> bool: ...
    def sample(self, other: Self, /) -> str: ...


WildcardT = TypeVar("WildcardT", bound=Wildcard)


@dataclass(frozen=True)
class CharSet:
    """A set of characters as ascending, disjoint ranges of code points."""

    ranges: Ranges

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]], *, negated: bool = False) -> CharSet:
        """The characters in (or, negated, outside) the ranges; `/` and NUL are never among them."""
        merged = _merged(ranges)
        return cls(_intersection(_complement(merged) if negated else merged, _ALPHABET))

    def accepts(self, exact: str) -> bool:
        code = ord(exact)
        return any(low <= code <= high for low, high in self.ranges)

    def meets(self, other: CharSet) -> bool:
        return bool(_intersection(self.ranges, other.ranges))

    def sample(self, other: CharSet) -> str:
        """A character of both; they must meet."""
        common = CharSet(_intersection(self.ranges, other.ranges))
        return next((char for char in _READABLE if common.accepts(char)), chr(common.ranges[0][0]))

    def without_dot(self) -> CharSet:
        return CharSet(_intersection(self.ranges, _complement(((_DOT, _DOT),))))


ANY_CHAR = CharSet(_ALPHABET)


class Machine(Generic[WildcardT]):
    """All alternatives of a pattern side by side, as one nondeterministic automaton without backtracking."""

    __slots__ = ("_cells", "_exact", "_spans", "_wild", "final", "loops", "sink", "start")

    def __init__(self, alternatives: Iterable[Sequence[str | WildcardT | None]]) -> None:
        self._cells: list[str | WildcardT | None] = []
        self._exact: dict[str, int] = {}
        self._wild: dict[WildcardT, int] = {}
        self._spans: list[int] = []
        self.start = self.loops = self.final = 0
        for atoms in alternatives:
            self._append(atoms)
        self.start |= (self.start & self.loops) << 1
        #: States from which every further text is accepted.
        self.sink = self.loops & self.final >> 1

    def _append(self, atoms: Sequence[str | WildcardT | None]) -> None:
        first = state = 1 << len(self._cells)
        for atom in atoms:
            if atom is None:
                self.loops |= state
            elif isinstance(atom, str):
                self._exact[atom] = self._exact.get(atom, 0) | state
            else:
                self._wild[atom] = self._wild.get(atom, 0) | state
            state <<= 1
        self._cells += [*atoms, None]
        self._spans.append(2 * state - first)
        self.start |= first
        self.final |= state

    def accepted(self, letter: str | WildcardT) -> int:
        """The states that can be left with some text of `letter`."""
        if isinstance(letter, str):
            states = self._exact.get(letter, 0)
            for wild, state in self._wild.items():
                if wild.accepts(letter):
                    states |= state
            return states
        states = 0
        for exact, state in self._exact.items():
            if letter.accepts(exact):
                states |= state
        for wild, state in self._wild.items():
            if wild.meets(letter):
                states |= state
        return states

    def step(self, states: int, accepted: int) -> int:
        """Where `states` lead with a letter for which `accepted` says yes."""
        after = (states & accepted) << 1 | states & self.loops
        return after | (after & self.loops) << 1

    def _flood(self, states: int) -> int:
        """Where `states` lead with any letters at all: to everything behind them in their alternative."""
        flooded = 0
        for span in self._spans:
            reached = states & span
            flooded |= span & -(reached & -reached)
        return flooded

    def _walk(self, atoms: Sequence[str | WildcardT | None], start: int) -> list[int]:
        """The states before the first and after each atom; ends early where none is left."""
        states = start
        walked = [states]
        for atom in atoms:
            states = self._flood(states) if atom is None else self.step(states, self.accepted(atom))
            walked.append(states)
            if not states:
                break
        return walked

    def meets(self, atoms: Sequence[str | WildcardT | None], start: int | None = None) -> bool:
        """Whether some text of `atoms` is accepted, from the beginning or from the states `start`."""
        return bool(self._walk(atoms, self.start if start is None else start)[-1] & self.final)

    def accepts(self, letters: Iterable[str]) -> bool:
        states = self.start
        for letter in letters:
            states = self.step(states, self.accepted(letter))
            if not states:
                return False
        return bool(states & self.final)

    def active(self, states: int) -> Iterator[tuple[int, str | WildcardT]]:
        """The states among `states` that wait for one letter, each with the atom that it waits for."""
        for at, atom in enumerate(self._cells):
            if atom is not None and states >> at & 1:
                yield 1 << at, atom

    def sample(self, atoms: Sequence[str | WildcardT | None]) -> list[str] | None:
        """The letters of a short text of `atoms` that is accepted here, or None: the walk, read backwards."""
        walked = self._walk(atoms, self.start)
        ends = walked[-1] & self.final
        if not ends:
            return None
        letters: list[str] = []
        row, at = len(atoms), ends.bit_length() - 1
        while row:
            atom, before, cell = atoms[row - 1], walked[row - 1], self._cells[at - 1] if at else None
            came_along = bool(before >> at & 1)
            if atom is None and came_along:
                row -= 1
            elif atom is None:
                at -= 1
                letters += [] if cell is None else [_letter(cell, cell)]
            elif cell is not None and before & self.accepted(atom) & 1 << at - 1:
                letters.append(_letter(atom, cell))
                row, at = row - 1, at - 1
            elif came_along and self.loops >> at & 1:
                letters.append(_letter(atom, atom))
                row -= 1
            else:  # only the way past a loop that stands for nothing is left
                at -= 1
        return letters[::-1]


@dataclass(frozen=True, eq=False)
class WildName:
    """The pattern of one name that is not one exact name: characters, sets of them, and stars (`None`)."""

    atoms: tuple[str | CharSet | None, ...]

    @cached_property
    def prefix(self) -> str:
        return _leading_text(self.atoms)

    @cached_property
    def suffix(self) -> str:
        return _leading_text(self.atoms[::-1])[::-1]

    @cached_property
    def has_star(self) -> bool:
        return None in self.atoms

    @cached_property
    def shortest(self) -> int:
        return len(self.atoms) - self.atoms.count(None)

    @cached_property
    def is_two_ends(self) -> bool:
        """Whether it is `prefix*suffix` and nothing else, as most patterns are."""
        return self.has_star and len(self.atoms) == len(self.prefix) + 1 + len(self.suffix)

    @cached_property
    def machine(self) -> Machine[CharSet]:
        return Machine(_without_dots(self.atoms))

    @cached_property
    def roomy(self) -> WildName:
        """The same, but each star takes at least one character: for samples that look like file names."""
        atoms: list[str | CharSet | None] = []
        for atom in self.atoms:
            atoms += [ANY_CHAR, None] if atom is None else [atom]
        return WildName(tuple(atoms))

    def accepts(self, exact: str) -> bool:
        """Whether this name, which a clean path may hold, is in the pattern."""
        return (
            len(exact) >= self.shortest
            and exact.startswith(self.prefix)
            and exact.endswith(self.suffix)
            and (self.is_two_ends or self.machine.accepts(exact))
        )

    def meets(self, other: WildName) -> bool:
        """Whether some name that a clean path may hold is in both."""
        if not _one_starts_other(self.prefix, other.prefix):
            return False
        if not _one_starts_other(self.suffix[::-1], other.suffix[::-1]):
            return False
        if self.is_two_ends and other.is_two_ends:
            return True
        walker, machine = self._paired(other)
        return machine.meets(walker.atoms)

    def sample(self, other: WildName) -> str:
        """A name of both; they must meet."""
        walker, machine = self._paired(other)
        name = "".join(machine.sample(walker.atoms) or ())
        if name not in NO_NAMES:
            return name
        return next(longer for longer in _stretched(name) if self.accepts(longer) and other.accepts(longer))

    def _paired(self, other: WildName) -> tuple[WildName, Machine[CharSet]]:
        """Who walks on whose machine: one without a star must be the machine, which leaves out `.` and `..`."""
        return (self, other.machine) if self.has_star else (other, self.machine)


ANY_NAME = WildName((None,))


class OutOfSteps(Exception):
    """A question that may take exponential work was given up."""


class Steps:
    """How much work a question may still cost."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


def answers(machine: Machine[WildName], states: int, wild: WildName, steps: Steps) -> set[int]:
    """Every value that `machine.accepted` takes, within `states`, over the single names of `wild`.

    Runs all the names that `states` wait for side by side as deterministic automata. OutOfSteps where that takes
    more steps than are left.
    """
    active = list(machine.active(states))
    if not active:
        return {0}
    patterns = [wild, *(WildName(tuple(cell)) if isinstance(cell, str) else cell for _, cell in active)]
    machines = [pattern.machine for pattern in patterns]
    letters = {(char == ".", tuple(one.accepted(char) for one in machines)) for char in _letters(patterns)}
    start = (0, tuple(one.start for one in machines))
    seen, todo, found = {start}, [start], set()
    while todo:
        dots, now = todo.pop()
        if dots > len("..") and now[0] & machines[0].final:
            ended = (one.final & own for one, own in zip(machines[1:], now[1:], strict=True))
            found.add(sum(state for (state, _), end in zip(active, ended, strict=True) if end))
        for is_dot, accepted in letters:
            steps.spend(len(machines))
            after = tuple(one.step(own, yes) for one, own, yes in zip(machines, now, accepted, strict=True))
            following = (min(dots + 1, 3) if is_dot else 3, after)
            if after[0] and following not in seen:
                seen.add(following)
                todo.append(following)
    return found


def _letters(patterns: Iterable[WildName]) -> Iterator[str]:
    """One character of each class that no pattern can tell apart."""
    borders = {1, _DOT, _SLASH, _SLASH + 1}
    for pattern in patterns:
        for atom in pattern.atoms:
            ranges = ((ord(atom), ord(atom)),) if isinstance(atom, str) else atom.ranges if atom else ()
            borders.update(border for low, high in ranges for border in (low, high + 1))
    return (chr(border) for border in sorted(borders - {_SLASH}) if border <= _LAST_CODE)


def _letter(one: str | WildcardT, other: str | WildcardT) -> str:
    if isinstance(one, str):
        return one
    return other if isinstance(other, str) else one.sample(other)


def _leading_text(atoms: tuple[str | CharSet | None, ...]) -> str:
    end = next((at for at, atom in enumerate(atoms) if not isinstance(atom, str)), len(atoms))
    return "".join(str(atom) for atom in atoms[:end])


def _one_starts_other(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def _accepts_dot(atom: str | CharSet | None) -> bool:
    return atom.accepts(".") if isinstance(atom, CharSet) else atom == "."


def _without_dots(atoms: tuple[str | CharSet | None, ...]) -> list[tuple[str | CharSet | None, ...]]:
    """The alternatives that accept the same names, except for `.` and `..`.

    With a star nothing is left out, because that never matters: where two patterns with stars share a name, they
    share longer ones, too (see `_stretched`).
    """
    if len(atoms) > len("..") or not all(_accepts_dot(atom) for atom in atoms):
        return [atoms]
    return [
        (*atoms[:at], atom.without_dot(), *atoms[at + 1 :])
        for at, atom in enumerate(atoms)
        if isinstance(atom, CharSet)
    ]


def _stretched(name: str) -> Iterator[str]:
    """Longer names, one of which two patterns with stars share if they share `name`.

    Say the one stands at its star behind `name[:low]` and the other behind `name[:high]`. Then the first star takes
    what follows up to `x`, and the second takes `x` and what was repeated.
    """
    for high in range(len(name) + 1):
        for low in range(high + 1):
            yield name[:high] + "x" + name[low:]


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Ranges) -> Ranges:
    lows = [0, *(high + 1 for _, high in ranges)]
    highs = [*(low - 1 for low, _ in ranges), _LAST_CODE]
    return tuple((low, high) for low, high in zip(lows, highs, strict=True) if low <= high)


def _intersection(one: Ranges, other: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return tuple((low, high) for low, high in pairs if low <= high)
