r"""The patterns of file reservations: what they match, whether two of them overlap, and where.

    a/b.ts      this path                         ?         one character
    *           any characters within one name    [a-z]     one of them; [!a-z] and [^a-z] one of the others
    **          as a whole name: any names, or    {a,b/c}   either; may be nested
                none; elsewhere the same as *     \*        the character itself

Names that begin with a dot are like all others. Upper and lower case differ. No wildcard matches a slash.

Patterns and paths are relative to the repository and are cleaned before anything else: `./`, doubled slashes and `.`
steps vanish. A pattern that ends with a slash means the directory, so `src/` is read as `src/**`, which matches `src`
itself, too. Braces are expanded before `**` is looked for, so `a{**,b}` is `a**` or `ab`.

`overlaps` is exact: it asks two automata for a common path (see glob_machine.py) and guesses nothing. This file may
not do I/O, ask for the time, or know what a reservation is.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from queueyard.kernel.errors import QueueyardError
from queueyard.queen.glob_machine import (
    ANY_CHAR,
    ANY_NAME,
    CharSet,
    Machine,
    OutOfSteps,
    Steps,
    WildName,
    answers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Name = str | WildName | None

Relation = Literal["exact", "superset", "subset", "partial"]

MAX_PATTERN_CHARS = 1_024
#: How many patterns without braces one pattern may stand for, and how long they may be together.
MAX_ALTERNATIVES = 256
MAX_EXPANDED_CHARS = 16_384
#: How much work `relation` puts into one direction before it settles for "partial".
MAX_RELATION_STEPS = 20_000

#: More than any team holds at once, so that a warm process parses each active pattern once.
_PARSED_PATTERNS_KEPT = 16_384
_SPECIAL = frozenset("[]{}\\\0")
_STEP_UP = re.compile(r"(?<![^/{,])\.\.(?![^/},])")
_PLAIN_RUN = re.compile(r"[^\\\[{},/]+")
_SHOWN_CHARS = 60


class BadPattern(QueueyardError):
    """A pattern, or a path to be matched, that can mean nothing in a repository."""


class Branch(NamedTuple):
    """One alternative of a pattern, cut where its wildcards begin."""

    #: The leading names without wildcards, as they are in a path; "" if there are none.
    head: str
    #: The rest, still as a pattern; "" if the head is the one path that is meant.
    rest: str


class Glob:
    """A valid pattern. Equal text means equal; made by `parse`."""

    __slots__ = ("_branches", "_machine", "_text")

    def __init__(self, text: str, branches: tuple[Branch, ...] | None = None) -> None:
        self._text = text
        self._branches = branches
        self._machine: Machine[WildName] | None = None

    @property
    def text(self) -> str:
        """The pattern as it was written, cleaned."""
        return self._text

    @property
    def literal(self) -> str | None:
        """The path, if the pattern stands for exactly one."""
        branch, *others = self.branches
        return None if others or branch.rest else branch.head

    @property
    def branches(self) -> tuple[Branch, ...]:
        # Only text that needs no reading gets here without: most patterns of a large set are never asked.
        if self._branches is None:
            self._branches = (_branch_of_simple(self._text),)
        return self._branches

    @property
    def machine(self) -> Machine[WildName]:
        """The automaton that accepts the names of the paths that match."""
        if self._machine is None:
            self._machine = Machine(_names_of(branch) for branch in self.branches)
        return self._machine

    def matches(self, path: str) -> bool:
        """Whether the path is one of those that are meant.

        BadPattern for a path that leads out of the repository, because a quiet "no" would read as "free".
        """
        return self.machine.accepts(names_in(clean_path(path)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"parse({self._text!r})"


def parse(text: str) -> Glob:
    """The pattern, checked and cleaned. BadPattern names the pattern, the place and the way out."""
    return _parse(text)


@lru_cache(maxsize=_PARSED_PATTERNS_KEPT)
def _parse(text: str) -> Glob:
    if len(text) <= MAX_PATTERN_CHARS and _SPECIAL.isdisjoint(text) and _is_clean(text):
        return Glob(text)
    _refuse_what_no_pattern_may_hold(text)
    cleaned = _cleaned(text)
    _refuse_too_long(cleaned)
    sources = _expanded(cleaned, text)
    return Glob(cleaned, tuple(dict.fromkeys(_branch_of(source, text) for source in sources)))


def overlaps(a: Glob, b: Glob) -> bool:
    """Whether there is a path that both match. Exact."""
    if a.text == b.text:
        return True
    return any(
        b.machine.meets(_names_of(branch))
        for branch in a.branches
        if any(_may_nest(branch.head, other.head) for other in b.branches)
    )


def witness(a: Glob, b: Glob) -> str | None:
    """A short path that both match, readable where possible; None exactly when they do not overlap."""
    roomy = Machine(_roomy(_names_of(branch)) for branch in b.branches)
    for branch in a.branches:
        names = roomy.sample(_roomy(_names_of(branch)))
        if names:
            return "/".join(names)
    for branch in a.branches:
        names = b.machine.sample(_names_of(branch))
        if names:
            return "/".join(names)
    return None


def relation(a: Glob, b: Glob) -> Relation:
    """How the paths of `a` stand to those of `b`: equal, a superset, a subset, or neither.

    "partial" also where the answer would cost too much (see MAX_RELATION_STEPS) and where they do not overlap at
    all. Every other answer is proven.
    """
    if a.text == b.text:
        return "exact"
    if _includes(a, b):
        return "exact" if _includes(b, a) else "superset"
    return "subset" if _includes(b, a) else "partial"


def clean_path(path: str) -> str:
    """The path without `.` steps and doubled or trailing slashes; "" for the root. BadPattern if it leads out."""
    if "\0" not in path and _is_clean(path):
        return path
    if "\0" in path:
        raise _bad(path, path.index("\0"), "a NUL character", "No path holds one: leave it out.", what="path")
    if path.startswith("/"):
        raise _bad(path, 0, "an absolute path", "Write it relative to the repository.", what="path")
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names:
        raise _steps_up(path, what="path")
    return "/".join(names)


def names_in(path: str) -> list[str]:
    """The names of a clean path."""
    return path.split("/") if path else []


@lru_cache(maxsize=_PARSED_PATTERNS_KEPT)
def names_of_rest(rest: str) -> tuple[Name, ...]:
    """What the rest of a branch asks of the names behind its head."""
    names = [_name_of(source) for source in names_in(rest)]
    return tuple(name for at, name in enumerate(names) if name is not None or at == 0 or names[at - 1] is not None)


def _names_of(branch: Branch) -> tuple[Name, ...]:
    return (*names_in(branch.head), *names_of_rest(branch.rest))


def _may_nest(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return not shorter or longer == shorter or longer.startswith(shorter + "/")


def _roomy(names: Sequence[Name]) -> tuple[Name, ...]:
    """Names that make a better sample: stars are not empty, and a directory holds something."""
    roomy = tuple(name.roomy if isinstance(name, WildName) else name for name in names)
    return roomy if names[-1] is not None else (*roomy[:-1], ANY_NAME.roomy, None)


def _includes(outer: Glob, inner: Glob) -> bool:
    """Whether every path of `inner` is one of `outer`; False also where that was given up."""
    steps = Steps(MAX_RELATION_STEPS)
    try:
        return all(_includes_all(outer.machine, _names_of(branch), steps) for branch in inner.branches)
    except OutOfSteps:
        return False


def _includes_all(outer: Machine[WildName], names: tuple[Name, ...], steps: Steps) -> bool:
    """Walk `names` with each set of states that `outer` can be in, looking for a path that it does not accept."""
    todo = [(0, outer.start)]
    seen = set(todo)
    while todo:
        at, states = todo.pop()
        if states & outer.sink:
            continue
        if not states or (at == len(names) and not states & outer.final):
            return False
        for following in _following(outer, names, at, states, steps) if at < len(names) else ():
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return True


def _following(
    outer: Machine[WildName], names: tuple[Name, ...], at: int, states: int, steps: Steps
) -> Iterator[tuple[int, int]]:
    steps.spend(1)
    name = names[at]
    if isinstance(name, str):
        yield at + 1, outer.step(states, outer.accepted(name))
        return
    if name is None:
        yield at + 1, states
    for accepted in answers(outer, states, name or ANY_NAME, steps):
        yield at if name is None else at + 1, outer.step(states, accepted)


def _is_clean(text: str) -> bool:
    slashed = f"/{text}/"
    return "//" not in slashed and "/./" not in slashed and "/../" not in slashed


def _refuse_what_no_pattern_may_hold(text: str) -> None:
    if not text:
        raise _bad(text, 0, "nothing in it", "Write a path or a pattern, such as 'src/**'.")
    _refuse_too_long(text)
    if "\0" in text:
        raise _bad(text, text.index("\0"), "a NUL character", "No path holds one: leave it out.")
    if text.startswith("/"):
        raise _bad(text, 0, "an absolute path", "Write it relative to the repository.")


def _refuse_too_long(text: str) -> None:
    if len(text) > MAX_PATTERN_CHARS:
        problem = f"more than {MAX_PATTERN_CHARS} characters"
        raise _bad(text, MAX_PATTERN_CHARS, problem, "Split it into several patterns.")


def _cleaned(text: str) -> str:
    """The text without empty names and `.` steps outside of braces, and with `**` behind a final slash."""
    *names, last = _split_outside_braces(text)
    kept = [name for name in (*names, last) if name not in {"", "."}]
    if not kept:
        raise _names_the_root(text)
    return "/".join(kept if last else [*kept, "**"])


def _split_outside_braces(text: str) -> list[str]:
    open_at: list[int] = []
    cuts = [-1]
    for at, piece in _pieces(text):
        if piece == "{":
            open_at.append(at)
        elif piece == "}" and not open_at:
            raise _bad(text, at, "a '}' without its '{'", r"Remove it, or write '\}' for the character itself.")
        elif piece == "}":
            open_at.pop()
        elif piece == "/" and not open_at:
            cuts.append(at)
    if open_at:
        raise _bad(text, open_at[-1], "a '{' that is never closed", r"Add '}', or write '\{' for the character itself.")
    return [text[before + 1 : after] for before, after in pairwise((*cuts, len(text)))]


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The positions and texts of `{`, `}`, `,`, `/` and of whole pieces of everything else."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            end = _end_of_escape(text, at)
        elif text[at] == "[":
            end = _read_class(text, at)[1]
        else:
            run = _PLAIN_RUN.match(text, at)
            end = run.end() if run else at + 1
        yield at, text[at:end]
        at = end


def _expanded(text: str, written: str) -> list[str]:
    """Every pattern without braces that the text stands for. Each brace in it is closed."""
    outer: list[tuple[list[str], list[str]]] = []
    finished: list[str] = []
    growing = [""]
    for _, piece in _pieces(text):
        if piece == "{":
            outer.append((finished, growing))
            finished, growing = [], [""]
        elif piece == "}":
            inner = [*finished, *growing]
            finished, before = outer.pop()
            growing = [start + end for start in before for end in inner]
        elif piece == "," and outer:
            finished += growing
            growing = [""]
        else:
            growing = [start + piece for start in growing]
        _refuse_too_many([*finished, *growing], written)
    return growing


def _refuse_too_many(alternatives: Sequence[str], written: str) -> None:
    if len(alternatives) > MAX_ALTERNATIVES or sum(map(len, alternatives)) > MAX_EXPANDED_CHARS:
        problem = f"braces that stand for more than {MAX_ALTERNATIVES} patterns or {MAX_EXPANDED_CHARS} characters"
        raise _bad(written, written.index("{"), problem, "Use '*' in place of some, or several patterns.")


def _branch_of_simple(text: str) -> Branch:
    """The same as `_branch_of`, for clean text that holds no other special characters than `*` and `?`."""
    wildcard = text.find("*")
    if "?" in text:
        wildcard = min(at for at in (wildcard, text.find("?")) if at >= 0)
    if wildcard < 0:
        return Branch(text, "")
    cut = text.rfind("/", 0, wildcard)
    return Branch(text[:cut], text[cut + 1 :]) if cut > 0 else Branch("", text)


def _branch_of(source: str, written: str) -> Branch:
    if source.startswith("/"):
        raise _bad(
            written, written.index("{"), f"an absolute path, {source!r}", "Move the slash: '{a/,}b' for '{a,}/b'."
        )
    steps = [(name, _name_of(name)) for name in source.split("/") if name]
    kept = [(name, meant) for name, meant in steps if meant != "."]
    if any(meant == ".." for _, meant in kept):
        raise _steps_up(written)
    if not kept:
        raise _names_the_root(written)
    if source.endswith("/"):
        kept.append(("**", None))
    wild = next((at for at, (_, meant) in enumerate(kept) if not isinstance(meant, str)), len(kept))
    return Branch("/".join(str(meant) for _, meant in kept[:wild]), "/".join(name for name, _ in kept[wild:]))


@lru_cache(maxsize=_PARSED_PATTERNS_KEPT)
def _name_of(source: str) -> Name:
    """What one name of a valid pattern without braces means: an exact name, a wildcard, or None for `**`."""
    if source == "**":
        return None
    atoms = list(_atoms_of(source))
    if all(isinstance(atom, str) for atom in atoms):
        return "".join(str(atom) for atom in atoms)
    return WildName(tuple(atom for at, atom in enumerate(atoms) if atom or at == 0 or atoms[at - 1]))


def _atoms_of(source: str) -> Iterator[str | CharSet | None]:
    at = 0
    while at < len(source):
        char = source[at]
        if char == "[":
            chars, at = _read_class(source, at)
            (low, high), *more = chars.ranges
            yield chars if more or low < high else chr(low)
            continue
        if char == "\\":
            at += 1
            yield source[at]
        else:
            yield None if char == "*" else ANY_CHAR if char == "?" else char
        at += 1


def _read_class(text: str, start: int) -> tuple[CharSet, int]:
    """The set that begins with the `[` at `start`, and the position behind its `]`."""
    at = start + 1
    negated = text[at : at + 1] in {"!", "^"} and at < len(text)
    at += negated
    if text[at : at + 1] == "]":
        raise _bad(text, start, "an empty '[]'", r"Name its characters; write '\]' for the bracket itself.")
    ranges: list[tuple[int, int]] = []
    while text[at : at + 1] != "]":
        low, after = _read_member(text, at, start)
        high = low
        if text[after : after + 1] == "-" and text[after + 1 : after + 2] not in {"]", ""}:
            high, after = _read_member(text, after + 1, start)
        if high < low:
            backwards = f"{chr(high)}-{chr(low)}"
            raise _bad(text, at, "a range that runs backwards", f"Write '{backwards}' for the range.")
        ranges.append((low, high))
        at = after
    chars = CharSet.of(ranges, negated=negated)
    if not chars.ranges:
        raise _bad(text, start, "a '[]' that no character fits", "Leave some character to match.")
    return chars, at + 1


def _read_member(text: str, at: int, start: int) -> tuple[int, int]:
    """The code point of the class member at `at`, and the position behind it."""
    if at >= len(text):
        raise _bad(text, start, "a '[' that is never closed", r"Add ']', or write '\[' for the character itself.")
    end = _end_of_escape(text, at) if text[at] == "\\" else at + 1
    if text[at] == "/":
        raise _bad(text, at, "a slash within '[]'", "No wildcard matches a slash: take it out of the brackets.")
    return ord(text[end - 1]), end


def _end_of_escape(text: str, at: int) -> int:
    following = text[at + 1 : at + 2]
    if not following:
        raise _bad(text, at, "a backslash with nothing behind it", r"Remove it, or write '\\' for the character.")
    if following == "/":
        raise _bad(text, at, "an escaped slash", "Write '/' alone: it only ever separates names.")
    return at + 2


def _steps_up(text: str, *, what: str = "pattern") -> BadPattern:
    # Only braces, brackets and backslashes can spell it so that it is not found; then the start has to do.
    found = _STEP_UP.search(text)
    return _bad(text, found.start() if found else 0, "a step upwards", "Write it without '..'.", what=what)


def _names_the_root(text: str) -> BadPattern:
    return _bad(text, 0, "nothing but the repository itself", "Write '**' for everything in it.")


def _bad(text: str, at: int, problem: str, fix: str, *, what: str = "pattern") -> BadPattern:
    shown = repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "...")
    return BadPattern(f"bad {what} {shown}: {problem} at position {at + 1}", hint=fix)
