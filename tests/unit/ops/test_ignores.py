"""Which files a scan leaves out."""

from __future__ import annotations

import pytest

from queueyard.ops.ignores import Ignores, conflict_copy_name


@pytest.mark.parametrize(
    ("patterns", "path", "is_out"),
    [
        (["*.tmp"], "a.tmp", True),
        (["*.tmp"], "deep/down/a.tmp", True),
        (["*.tmp"], "a.tmp.md", False),
        (["/a.md"], "a.md", True),
        (["/a.md"], "b/a.md", False),
        (["b/a.md"], "b/a.md", True),
        (["b/a.md"], "c/b/a.md", False),
        (["b/**"], "b/c/d.md", True),
        (["**/d.md"], "d.md", True),
        (["**/d.md"], "b/c/d.md", True),
        (["a?.md"], "ab.md", True),
        (["a?.md"], "a/.md", False),
        (["[ab].md"], "a.md", True),
        (["[!ab].md"], "a.md", False),
        (["[!ab].md"], "c.md", True),
        (["[b-a].md"], "a.md", False),
        (["*.md", "!keep.md"], "keep.md", False),
        (["!keep.md", "*.md"], "keep.md", True),
        (["build/"], "build", False),
        (["# *.md", "", "  "], "a.md", False),
        (["\\#a"], "#a", True),
        ([], ".git", True),
        ([], ".jolliignore", True),
        ([], "a (conflict 2026-01-31-14-05).md", True),
        ([], "a (conflict).md", False),
    ],
)
def test_a_file_is_left_out_by_the_last_pattern_that_fits(patterns: list[str], path: str, is_out: bool) -> None:
    assert Ignores(exclude=patterns).leaves_out_file(path) == is_out


@pytest.mark.parametrize(
    ("patterns", "path", "is_out"),
    [
        (["build/"], "build", True),
        (["build/"], "src/build", True),
        (["*.md"], "docs", False),
        ([], ".git", True),
        ([], "sub/.JJ", True),
        ([], ".github", False),
    ],
)
def test_a_folder_is_left_out_with_all_that_is_in_it(patterns: list[str], path: str, is_out: bool) -> None:
    assert Ignores(exclude=patterns).leaves_out_folder(path) == is_out


def test_with_an_include_list_only_what_it_names_is_taken() -> None:
    ignores = Ignores(include=["**/*.md"], exclude=["draft.md"])

    assert [path for path in ("a.md", "b/c.md", "b/c.txt", "draft.md") if not ignores.leaves_out_file(path)] == [
        "a.md",
        "b/c.md",
    ]


def test_what_a_killed_pull_left_is_never_pushed() -> None:
    ignores = Ignores()

    assert ignores.leaves_out_file("notes/.a.md.queueyard-0123456789ab")
    assert not ignores.leaves_out_file("notes/a.md.queueyard-0123456789ab")
    assert not ignores.leaves_out_file("notes/.a.md.queueyard-copy")


@pytest.mark.parametrize(
    ("path", "number", "name"),
    [
        ("notes/a.md", 1, "notes/a (conflict 2026-01-31-14-05).md"),
        ("a.tar.gz", 2, "a.tar (conflict 2026-01-31-14-05-2).gz"),
        ("Makefile", 1, "Makefile (conflict 2026-01-31-14-05)"),
        (".env", 1, ".env (conflict 2026-01-31-14-05)"),
    ],
)
def test_a_conflict_copy_stands_beside_its_file_and_is_never_pushed(path: str, number: int, name: str) -> None:
    copy = conflict_copy_name(path, "2026-01-31-14-05", number)

    assert copy == name
    assert Ignores().leaves_out_file(copy)
