"""An index answers like asking each pattern, with less work."""

from __future__ import annotations

from itertools import product
import sys
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from queueyard.queen.glob_index import GlobIndex
from queueyard.queen.globs import BadPattern, overlaps, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

NAME = st.sampled_from(
    ["a", "b", "ab", "a0", "a-b", "*", "a*", "*b", "?", "[ab]", "**", "**", "{a,b}", "{a,b/**}", "é"]
)
PATTERN = st.lists(NAME, min_size=1, max_size=5).map("/".join)
PATH = st.lists(st.sampled_from(["a", "b", "ab", "a0", "a-b", "é", "*"]), max_size=4).map("/".join)


#: Every pattern of up to three of these names: few enough to try each against each.
SMALL_PATTERNS = {
    key: "/".join(names)
    for key, names in enumerate(
        names for size in (1, 2, 3) for names in product(["a", "b", "*", "**", "?b", "{a,b/**}"], repeat=size)
    )
}


def index_of(patterns: Mapping[int, str]) -> GlobIndex[int]:
    index = GlobIndex[int]()
    for key, text in patterns.items():
        index.add(key, parse(text))
    return index


def asked_one_by_one(patterns: Mapping[int, str], candidate: str) -> list[int]:
    return [key for key, text in patterns.items() if overlaps(parse(text), parse(candidate))]


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


def test_each_small_pattern_finds_each_that_it_overlaps() -> None:
    index = index_of(SMALL_PATTERNS)

    wrong = [
        candidate
        for candidate in SMALL_PATTERNS.values()
        if index.overlapping(parse(candidate)) != asked_one_by_one(SMALL_PATTERNS, candidate)
    ]

    assert wrong == []


@given(st.lists(PATTERN, max_size=25), st.lists(PATTERN, min_size=1, max_size=4))
@settings(max_examples=250, deadline=None)
def test_overlapping_is_the_same_as_asking_each_pattern(texts: list[str], candidates: list[str]) -> None:
    patterns = dict(enumerate(texts))
    index = index_of(patterns)

    for candidate in candidates:
        assert index.overlapping(parse(candidate)) == asked_one_by_one(patterns, candidate)


@given(st.lists(PATTERN, max_size=25), PATH)
@settings(max_examples=250, deadline=None)
def test_matching_is_the_same_as_asking_each_pattern(texts: list[str], path: str) -> None:
    index = index_of(dict(enumerate(texts)))

    found = index.matching(path)

    assert found == [key for key, text in enumerate(texts) if parse(text).matches(path)]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), PATTERN), st.one_of(st.none(), PATTERN)), max_size=30)
)
@settings(max_examples=200, deadline=None)
def test_answers_follow_additions_replacements_and_removals(
    changes: list[tuple[int, str | None, str | None]],
) -> None:
    index, patterns = GlobIndex[int](), dict[int, str]()

    for key, text, candidate in changes:
        removed = patterns.pop(key, None)
        if text is not None:
            patterns[key] = text
            index.add(key, parse(text))
        elif removed is not None:
            index.remove(key)
        if candidate is not None:
            assert index.overlapping(parse(candidate)) == asked_one_by_one(patterns, candidate)

    assert len(index) == len(patterns)
    assert index.overlapping(parse("**")) == list(patterns)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("src/components/Button.tsx", ["exact"]),
        ("src/components/Button/**", ["directory", "tests"]),
        ("src/**/*.test.ts", ["directory", "tests"]),
        ("*.md", ["root"]),
        ("**/*.md", ["directory", "root"]),
        ("src/*/Button.t*x", ["exact"]),
        ("src", []),
        ("src/**", ["exact", "directory", "tests"]),
        ("src0/**", []),
        ("**", ["exact", "directory", "tests", "root"]),
    ],
)
def test_the_examples_of_the_spec_are_found_where_they_overlap(candidate: str, expected: list[str]) -> None:
    index = GlobIndex[str]()
    index.add("exact", parse("src/components/Button.tsx"))
    index.add("directory", parse("src/components/Button/**"))
    index.add("tests", parse("src/**/*.test.ts"))
    index.add("root", parse("*.md"))

    found = index.overlapping(parse(candidate))

    assert found == expected


def test_a_pattern_with_several_alternatives_is_named_once() -> None:
    index = index_of({1: "{a,b,a/c,a/**}"})

    assert index.overlapping(parse("{a/**,**}")) == [1]

    index.remove(1)

    assert index.overlapping(parse("**")) == []


def test_a_key_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        index_of({1: "a"}).remove(2)


def test_a_path_out_of_the_repository_is_refused_rather_than_called_free() -> None:
    with pytest.raises(BadPattern):
        index_of({1: "**"}).matching("../a")


def test_patterns_elsewhere_cost_a_question_nothing() -> None:
    def work(others: int) -> int:
        index = index_of({key: f"lib/part{key}/**/*.py" for key in range(others)})
        index.add(-1, parse("src/**"))
        index.overlapping(parse("src/*"))
        return lines_run(lambda: index.overlapping(parse("src/a*/**/*.py")))

    work(20)  # what is read once is read now

    assert work(2_000) == work(20)


@pytest.mark.parametrize(("rest", "times_less"), [("**", 20), ("**/*.test.ts", 2), ("*/x.ts", 2)])
def test_a_leading_double_star_costs_less_than_asking_each_pattern(rest: str, times_less: int) -> None:
    patterns = {key: f"lib/part{key}/{rest}" for key in range(1_000)}
    index = index_of(patterns)

    one_by_one = lines_run(lambda: asked_one_by_one(patterns, "**/*.md"))
    at_once = lines_run(lambda: index.overlapping(parse("**/*.md")))

    assert at_once * times_less < one_by_one
