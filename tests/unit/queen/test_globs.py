"""What globs.py promises, checked against a second, naive implementation that shares no code with it."""

from __future__ import annotations

from itertools import product
import sys
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from queueyard.queen.glob_machine import WildName
from queueyard.queen.globs import (
    MAX_ALTERNATIVES,
    MAX_EXPANDED_CHARS,
    MAX_PATTERN_CHARS,
    BadPattern,
    Glob,
    clean_path,
    overlaps,
    parse,
    relation,
    witness,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# ---------------------------------------------------------------- the naive implementation

#: What generated patterns tell apart: z stands for the rest of [.-z], ~ for all other characters.
ALPHABET = "ab.z~/"
#: A set of states of one pattern.
States = frozenset[int]


class Naive:
    """A pattern as a textbook automaton over the characters of a path, each name preceded by a slash."""

    def __init__(self, text: str) -> None:
        self.moves: dict[int, list[tuple[str, int]]] = {}
        self.free: dict[int, list[int]] = {}
        self.ends: set[int] = set()
        self.count = 1
        for source in naive_expansion(text):
            self._add(source)

    def _new(self) -> int:
        self.count += 1
        return self.count

    def _move(self, start: int, chars: str, end: int | None = None) -> int:
        target = self._new() if end is None else end
        self.moves.setdefault(start, []).append((chars, target))
        return target

    def _add(self, source: str) -> None:
        at = self._new()
        self.free.setdefault(1, []).append(at)
        names = [name for name in source.split("/") if name not in {"", "."}]
        for name in [*names, "**"] if source.endswith("/") else names:
            if name == "**":
                inside = self._move(self._move(at, "/"), NO_SLASH)
                self._move(inside, NO_SLASH, inside)
                self.free.setdefault(inside, []).append(at)
                after = self._new()
                self.free.setdefault(at, []).append(after)
                at = after
                continue
            at = self._move(at, "/")
            for chars in naive_atoms(name):
                if chars == "*":
                    self._move(at, NO_SLASH, at)
                else:
                    at = self._move(at, chars[1:])
        self.ends.add(at)

    def closed(self, states: set[int]) -> States:
        todo = list(states)
        while todo:
            for state in self.free.get(todo.pop(), []):
                if state not in states:
                    states.add(state)
                    todo.append(state)
        return frozenset(states)

    def step(self, states: States, char: str) -> States:
        return self.closed({end for state in states for chars, end in self.moves.get(state, []) if char in chars})

    def accepts(self, states: States) -> bool:
        return not states.isdisjoint(self.ends)

    def matches(self, path: str) -> bool:
        states = self.closed({1})
        for char in f"/{path}" if path else "":
            states = self.step(states, char)
        return self.accepts(states)


NO_SLASH = ALPHABET.replace("/", "")


def naive_expansion(text: str) -> list[str]:
    """Replace the first innermost pair of braces until there is none."""
    end = text.find("}")
    if end < 0:
        return [text]
    start = text.rindex("{", 0, end)
    choices = text[start + 1 : end].split(",")
    return [more for choice in choices for more in naive_expansion(text[:start] + choice + text[end + 1 :])]


def naive_atoms(name: str) -> Iterator[str]:
    """`*` for a star, otherwise `=` and the characters of the alphabet that fit."""
    at = 0
    while at < len(name):
        if name[at] == "[":
            end = name.index("]", at)
            members = name[at + 1 : end]
            negated = members[0] in "!^"
            chosen = naive_members(members[negated:])
            yield "=" + "".join(char for char in NO_SLASH if (char in chosen) != negated)
            at = end
        else:
            yield {"*": "*", "?": f"={NO_SLASH}"}.get(name[at], f"={name[at]}")
        at += 1


def naive_members(members: str) -> str:
    return {".-z": "ab.z", "a-b": "ab"}.get(members, members)


def naive_paths(one: Naive, other: Naive) -> Iterator[tuple[bool, bool, str]]:
    """For every pair of states that some clean path leads to: who accepts, and a shortest such path."""
    start = (one.closed({1}), other.closed({1}), "root")
    todo = [(start, "")]
    seen = {start}
    for (mine, theirs, name), path in todo:
        if name in {"root", "name"}:
            yield one.accepts(mine), other.accepts(theirs), path[1:]
        for char in ALPHABET:
            following = NAME_STEPS.get((name, char))
            state = (one.step(mine, char), other.step(theirs, char), following or "")
            if following and state not in seen and (state[0] or state[1]):
                seen.add(state)
                todo.append((state, path + char))


#: Which beginnings of a name are not yet one that a clean path may hold.
NAME_STEPS = {
    **{(state, char): "name" for state in ("", "slash", ".", "..", "name") for char in "abz~"},
    ("root", "/"): "slash",
    ("slash", "."): ".",
    (".", "."): "..",
    ("..", "."): "name",
    ("name", "."): "name",
    ("name", "/"): "slash",
}

NAMES = ["".join(chars) for size in (1, 2, 3) for chars in product(NO_SLASH, repeat=size)]
SHORT_PATHS = [
    "/".join(names) for size in (1, 2, 3) for names in product(["a", "b", "z", "ab", "a.b", ".a", "ba"], repeat=size)
] + [name for name in NAMES if name not in {".", ".."}]


def is_valid(text: str) -> bool:
    try:
        parse(text)
    except BadPattern:
        return False
    return True


ATOM = st.sampled_from(["a", "b", ".", "*", "?", "[ab]", "[!a]", "[^.]", "[a.]", "[.-z]", "[a-b]", "**"])
NAME = st.one_of(
    st.sampled_from(["**", "*", "a", "b", "ab"]),
    st.lists(ATOM, min_size=1, max_size=4).map("".join),
)
PLAIN = st.lists(NAME, min_size=1, max_size=4).map("/".join)
PATTERN = st.one_of(
    PLAIN,
    st.builds("{}/{{{},{}}}".format, NAME, PLAIN, PLAIN),
    st.builds("{{{},{{{},{}}}}}/{}".format, NAME, NAME, PLAIN, NAME),
    st.builds("{}{{,{}}}{}".format, NAME, PLAIN, NAME),
    st.builds("./{}//{}/".format, NAME, NAME),
).filter(is_valid)


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of the code under test one call executes: its cost, without a clock."""
    lines = 0

    def count(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        if "glob" not in frame.f_code.co_filename.rpartition("/")[2]:
            return None
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def both(a: str, b: str) -> tuple[Glob, Glob]:
    return parse(a), parse(b)


# ---------------------------------------------------------------- matching

MATCHES = [
    ("src/components/Button.tsx", "src/components/Button.tsx"),
    ("src/components/Button/**", "src/components/Button"),
    ("src/components/Button/**", "src/components/Button/index.ts"),
    ("src/components/Button/**", "src/components/Button/a/b/c.css"),
    ("src/**/*.test.ts", "src/a.test.ts"),
    ("src/**/*.test.ts", "src/a/b/c.test.ts"),
    ("*.md", "README.md"),
    ("*", ".gitignore"),
    ("**", "a/b"),
    ("**", "."),
    ("a/**/b", "a/b"),
    ("a/**/b", "a/x/y/b"),
    ("**/**/a", "a"),
    ("abc**", "abc"),
    ("**abc", "xabc"),
    ("***", "a"),
    ("a?c", "aüc"),
    ("[a-ü]*", "ö"),
    ("[!a]", "ü"),
    ("[^a]b", "cb"),
    ("[a-]", "-"),
    ("[-a]", "-"),
    ("[a-b-c]", "-"),
    ("[a\\-c]", "-"),
    ("[\\]]", "]"),
    ("[\\a-\\c]", "b"),
    ("[,]", ","),
    ("{[,}],b}", "}"),
    ("a]", "a]"),
    ("a,b", "a,b"),
    ("\\*", "*"),
    ("\\a", "a"),
    ("\\{a\\}", "{a}"),
    ("a{b,c{d,e}}f", "acef"),
    ("a{,b}", "a"),
    ("a{}b", "ab"),
    ("{src,docs/en}/*.md", "docs/en/a.md"),
    ("{**,a}/b", "x/y/b"),
    ("src/", "src"),
    ("src/", "src/a/b"),
    ("{src/,lib}", "src/a"),
    ("./src//./a.ts", "src/a.ts"),
    ("src/a.ts", "./src//a.ts/"),
]
MISSES = [
    ("src/components/Button.tsx", "src/components/Button.ts"),
    ("src/components/Button/**", "src/components/Buttons"),
    ("src/**/*.test.ts", "lib/a.test.ts"),
    ("src/**/*.test.ts", "src/a.ts"),
    ("*.md", "docs/README.md"),
    ("a*", "ab/c"),
    ("a?b", "a/b"),
    ("a[!x]b", "a/b"),
    ("a[+-9]b", "a/b"),
    ("a/*", "a"),
    ("*", "."),
    ("a/**b", "a/x/b"),
    ("a{**,x}", "ab/c"),
    ("A", "a"),
    ("[a\\-c]", "b"),
    ("[!a-c]", "b"),
    ("\\*", "a"),
    ("{src,lib}/a", "docs/a"),
    ("src/a", "src"),
]


@pytest.mark.parametrize(("pattern", "path"), MATCHES)
def test_a_pattern_matches_the_paths_that_it_means(pattern: str, path: str) -> None:
    assert parse(pattern).matches(path)


@pytest.mark.parametrize(("pattern", "path"), MISSES)
def test_a_pattern_matches_no_other_path(pattern: str, path: str) -> None:
    assert not parse(pattern).matches(path)


@given(PATTERN)
@settings(max_examples=150, deadline=None)
def test_matching_agrees_with_the_naive_implementation(text: str) -> None:
    glob, naive = parse(text), Naive(text)

    wrong = [path for path in ["", *SHORT_PATHS] if glob.matches(path) != naive.matches(path)]

    assert wrong == []


@pytest.mark.parametrize("path", ["../a", "a/../b", "/a/b", "a\0b", ".."])
def test_a_path_out_of_the_repository_is_refused_rather_than_called_free(path: str) -> None:
    with pytest.raises(BadPattern, match=r"bad path .* at position \d"):
        parse("**").matches(path)


def test_a_path_may_have_two_dots_within_a_name() -> None:
    assert clean_path("a../..b/c..d") == "a../..b/c..d"


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("written", "cleaned"),
    [
        ("./src//a.ts", "src/a.ts"),
        ("src/./a/.", "src/a"),
        ("src/", "src/**"),
        ("src//", "src/**"),
        ("{a,./b}/./c", "{a,./b}/c"),
        ("src/**", "src/**"),
        (".//{a/,b}", "{a/,b}"),
    ],
)
def test_text_is_cleaned_outside_of_braces(written: str, cleaned: str) -> None:
    assert parse(written).text == cleaned


@given(PATTERN)
@settings(max_examples=150, deadline=None)
def test_cleaned_text_stands_for_the_same_paths(text: str) -> None:
    glob = parse(text)

    again = parse(glob.text)

    assert again.text == glob.text
    assert set(again.branches) == set(glob.branches)


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("src/a.ts", "src/a.ts"),
        ("./src//a.ts", "src/a.ts"),
        ("\\*/[b]", "*/b"),
        ("{a}", "a"),
        ("{a,a}", "a"),
        ("a/**", None),
        ("a/?", None),
        ("{a,b}", None),
        ("src/", None),
    ],
)
def test_literal_is_the_path_of_a_pattern_that_means_one(pattern: str, literal: str | None) -> None:
    assert parse(pattern).literal == literal


def test_patterns_of_equal_text_are_one_key() -> None:
    assert {parse("a/**"): 1}[parse("./a/")] == 1
    assert parse("a") != parse("b")
    assert parse("a") != "a"


# ---------------------------------------------------------------- bad patterns

BAD = [
    ("", 1, "nothing in it"),
    (".", 1, "the repository itself"),
    ("./", 1, "the repository itself"),
    ("{.,b}", 1, "the repository itself"),
    ("{,b}", 1, "the repository itself"),
    ("/a/x", 1, "absolute"),
    ("{/x,a}/b", 1, "absolute"),
    ("{,a}/b", 1, "absolute"),
    ("..", 1, "upwards"),
    ("a..b/../c", 6, "upwards"),
    ("a/..", 3, "upwards"),
    ("{a,..}/b", 4, "upwards"),
    ("[.]\\.", 1, "upwards"),
    ("{.,a}.", 1, "upwards"),
    ("a\0", 2, "NUL"),
    ("bad[", 4, "never closed"),
    ("a/[!", 3, "never closed"),
    ("a/[bc", 3, "never closed"),
    ("a/[b-", 3, "never closed"),
    ("a/[]", 3, "empty"),
    ("a/[!]", 3, "empty"),
    ("[]a]", 1, "empty"),
    ("a[xz-b]", 4, "backwards"),
    ("a[b/c]", 4, "slash"),
    ("a[+-/]", 5, "slash"),
    ("[!\x01-\U0010ffff]", 1, "no character fits"),
    ("a/{b", 3, "never closed"),
    ("a/{b,{c}", 3, "never closed"),
    ("a}b", 2, "without its"),
    ("{a}}", 4, "without its"),
    ("a\\", 2, "nothing behind"),
    ("[a\\", 3, "nothing behind"),
    ("a\\/b", 2, "escaped slash"),
    ("[a\\/b]", 3, "escaped slash"),
    ("x" * (MAX_PATTERN_CHARS + 1), MAX_PATTERN_CHARS + 1, "more than 1024 characters"),
    ("a" * (MAX_PATTERN_CHARS - 1) + "/", MAX_PATTERN_CHARS + 1, "more than 1024 characters"),
    ("a/" + "{a,b}" * 9, 3, f"more than {MAX_ALTERNATIVES} patterns"),
    ("{" + "," * MAX_ALTERNATIVES + "}x", 1, f"more than {MAX_ALTERNATIVES} patterns"),
    ("y" * 200 + "{a,b}" * 7, 201, f"{MAX_EXPANDED_CHARS} characters"),
]


@pytest.mark.parametrize(("pattern", "position", "problem"), BAD)
def test_a_bad_pattern_is_refused_with_its_place_and_a_way_out(pattern: str, position: int, problem: str) -> None:
    with pytest.raises(BadPattern) as caught:
        parse(pattern)

    assert problem in str(caught.value)
    assert str(caught.value).endswith(f"at position {position}")
    assert repr(pattern)[:50] in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "path"), [("a/{.,b}", "a"), ("x{,a}/b", "x/b"), ("a..b", "a..b"), ("...", "..."), ("[..]a", ".a")]
)
def test_what_only_looks_bad_is_accepted(pattern: str, path: str) -> None:
    assert parse(pattern).matches(path)


def test_a_pattern_as_long_as_allowed_is_accepted() -> None:
    assert parse("x" * MAX_PATTERN_CHARS).matches("x" * MAX_PATTERN_CHARS)


def test_as_many_alternatives_as_allowed_are_accepted() -> None:
    assert len(parse("{a,b}" * 8).branches) == MAX_ALTERNATIVES


@given(st.text(alphabet="ab.*?[]{},!^-\\/\0", max_size=12))
@settings(max_examples=400, deadline=None)
def test_any_text_is_either_refused_with_a_hint_or_has_a_path(text: str) -> None:
    try:
        glob = parse(text)
    except BadPattern as bad:
        hint, path = bad.hint, None
    else:
        hint, path = None, witness(glob, glob)

    assert hint or (path is not None and parse(text).matches(path))


# ---------------------------------------------------------------- overlap

#: The symmetric match of the spec misses these; the paths that both match are obvious.
OVERLAPS = [
    ("src/*/x.ts", "src/a/*.ts", "src/a/x.ts"),
    ("a/*/c", "a/b/*", "a/b/c"),
    ("lib/a*", "lib/*b", "lib/ab"),
    ("./src/a.ts", "src/**", "src/a.ts"),
    ("src/**", "src/**/*.test.ts", "src/x.test.ts"),
    ("src/**/*.test.ts", "src/ui/**", "src/ui/x.test.ts"),
    ("src/**", "src/ui/**", "src/ui/x"),
    ("a/**", "a", "a"),
    ("**/*.md", "docs/**", "docs/x.md"),
    ("**", "**", "x"),
    ("[a-m]*", "*[n-z]", "ax"),
    ("{a,b}/c", "{b,d}/{c,e}", "b/c"),
    (".*", "*.", None),
    ("src/", "src/a.ts", "src/a.ts"),
    ("a*b*c", "a?b?c", "axbxc"),
    ("**/a/**/b", "x/*/y/*", "x/a/y/b"),
]
APART = [
    ("*.md", "src/**"),
    ("src/**/*.test.ts", "src/main.go"),
    ("src/a", "src/ab/**"),
    ("**/x.go", "src/y.go"),
    ("src/components/Button.tsx", "*.md"),
    ("src/components/Button/**", "src/components/Button.tsx"),
    ("a/*", "a"),
    ("a/*", "a/b/c"),
    ("A/**", "a/**"),
    ("a*", "b*"),
    ("*.ts", "*.tsx"),
    ("[a-m]", "[n-z]"),
    ("[!a]", "a"),
    ("?", "??*"),
    ("a*a", "a"),
    ("{a,b}/x", "{c,d}/x"),
    ("*/*", "{a,b}"),
    # A path never holds "." or "..", and that is all these have in common.
    ("[.a]", "[.b]"),
    ("?.", ".?"),
    ("?.", ".?*"),
]


@pytest.mark.parametrize(("a", "b", "path"), OVERLAPS)
def test_patterns_with_a_common_path_overlap_and_it_is_named(a: str, b: str, path: str | None) -> None:
    one, other = both(a, b)

    found = witness(one, other)

    assert overlaps(one, other)
    assert overlaps(other, one)
    assert found is not None
    assert found == (path or found)
    assert one.matches(found)
    assert other.matches(found)


def test_a_sample_of_two_names_is_never_a_step() -> None:
    """The shortest text of both is ".", and no single character put into it makes another one."""
    hidden, final_dot = WildName((".", None)), WildName((None, "."))

    name = hidden.sample(final_dot)

    assert name not in {"", ".", ".."}
    assert hidden.accepts(name)
    assert final_dot.accepts(name)


@pytest.mark.parametrize(("a", "b"), APART)
def test_patterns_without_a_common_path_do_not_overlap(a: str, b: str) -> None:
    one, other = both(a, b)

    assert not overlaps(one, other)
    assert not overlaps(other, one)
    assert witness(one, other) is None


@given(PATTERN, PATTERN)
@settings(max_examples=500, deadline=None)
def test_overlap_is_exact_and_symmetric_and_has_a_witness(a: str, b: str) -> None:
    one, other = both(a, b)
    mine, theirs = Naive(a), Naive(b)

    expected = next((path for yes, also, path in naive_paths(mine, theirs) if yes and also and path), None)

    assert overlaps(one, other) is overlaps(other, one) is (expected is not None)
    for path in (witness(one, other), witness(other, one)):
        assert (path is None) is (expected is None)
        assert path is None or (one.matches(path) and other.matches(path))


@given(PATTERN)
@settings(max_examples=150, deadline=None)
def test_each_pattern_overlaps_itself(text: str) -> None:
    assert overlaps(parse(text), parse(text))
    assert overlaps(parse(text), parse("**"))


# ---------------------------------------------------------------- relation


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("src/**", "src/**", "exact"),
        ("src/", "src/**", "exact"),
        ("a/{b,c}", "{a/c,a/b}", "exact"),
        ("*", "{?,??*}", "exact"),
        ("?", "[!.]", "exact"),
        ("**/**", "**", "exact"),
        ("[a-z]", "{[a-m],[n-z]}", "exact"),
        ("[a-z]", "{[a-c],[x-z]}", "superset"),
        ("?", "[\x01-z]", "superset"),
        ("src/**", "src/a.ts", "superset"),
        ("src/**", "src/**/*.ts", "superset"),
        ("**", "**/*", "superset"),
        ("**/a", "{a,*/a}", "superset"),
        ("src/a/**", "src/**", "subset"),
        ("*.test.ts", "*.ts", "subset"),
        ("[a-c]x", "[a-z]?", "subset"),
        ("{a,b}/c", "*/{c,d}", "subset"),
        ("src/*/x.ts", "src/a/*.ts", "partial"),
        ("a*", "*b", "partial"),
        ("a", "b", "partial"),
    ],
)
def test_relation_says_how_two_patterns_stand_to_each_other(a: str, b: str, expected: str) -> None:
    mirrored = {"superset": "subset", "subset": "superset"}

    assert relation(*both(a, b)) == expected
    assert relation(*both(b, a)) == mirrored.get(expected, expected)


def naive_relation(a: str, b: str) -> str:
    seen = list(naive_paths(Naive(a), Naive(b)))
    only_a = any(yes and not also for yes, also, _ in seen)
    only_b = any(also and not yes for yes, also, _ in seen)
    return {(False, False): "exact", (True, False): "superset", (False, True): "subset"}.get(
        (only_a, only_b), "partial"
    )


@given(PATTERN, PATTERN)
@settings(max_examples=300, deadline=None)
def test_relation_is_exact_for_small_patterns(a: str, b: str) -> None:
    assert relation(*both(a, b)) == naive_relation(a, b)


def test_relation_is_exact_for_each_pair_of_very_small_patterns() -> None:
    names = ["a", "*", "**", "{a,*/a}", "[!a]"]
    patterns = [*names, *map("/".join, product(names, repeat=2))]

    wrong = [(a, b) for a, b in product(patterns, repeat=2) if relation(*both(a, b)) != naive_relation(a, b)]

    assert wrong == []


def test_relation_gives_up_rather_than_take_exponential_work() -> None:
    # To tell these apart takes a deterministic automaton with a state for each set of the last 17 characters.
    larger, smaller = parse("*a" + "?" * 16), parse("*a" + "?" * 15 + "[!z]")

    lines = lines_run(lambda: relation(larger, smaller))

    assert relation(larger, smaller) == "partial"
    assert lines < 1_000_000


# ---------------------------------------------------------------- work


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("*a", "a*"),
        ("*[ab]", "[bc]*"),
        ("**/a/", "a/**/"),
        ("**/*a*/", "*b*/**/"),
        ("?*", "*a"),
    ],
)
def test_twice_the_stars_take_at_most_four_times_the_work(a: str, b: str) -> None:
    def work(times: int) -> int:
        one, other = parse(a * times + "x"), parse(b * times + "y")
        return lines_run(lambda: overlaps(one, other))

    small, large = work(24), work(48)

    assert large <= 4.5 * small


def test_the_longest_patterns_are_compared_with_bounded_work() -> None:
    stars = parse("*a" * (MAX_PATTERN_CHARS // 2))
    names = parse("**/*a*b/" * (MAX_PATTERN_CHARS // 8 - 1) + "x")

    assert lines_run(lambda: overlaps(stars, parse("b" + "a*" * 500 + "b"))) < 20_000
    assert lines_run(lambda: overlaps(names, parse("**/*b*a/" * 120 + "x"))) < 2_000_000
    assert lines_run(lambda: names.matches("ab/" * 300 + "y")) < 2_000_000
