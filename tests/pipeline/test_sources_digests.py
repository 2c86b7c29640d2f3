"""Rewritten files: opened only if they look different, new only if they are. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queueyard.pipeline.sources.digests import (
    SETTLED_NS,
    Look,
    Marks,
    Origin,
    Seen,
    Snapshot,
    between,
    of_those_there,
    plan,
    suspects,
    tasks,
)

QUEUE = Origin(stream="runforge.queue", place="/w", path="/w/queue.json")


def look(changed: int = 1, *, inode: int = 7, size: int = 10, age_ns: int = SETTLED_NS) -> Look:
    return Look(origin=QUEUE, inode=inode, size=size, changed_ns=changed, looked_ns=changed + age_ns)


def marks_of(found: Look, digest: str = "a") -> Marks:
    return plan({}, [Seen(look=found, digest=digest)])[1]


def test_a_file_that_was_never_read_is_opened_and_new() -> None:
    snapshots, marks = plan({}, [Seen(look=look(), digest="a")])

    assert suspects({}, [look()]) == [look()]
    assert [one.path for one in snapshots] == [QUEUE.path]
    assert between({}, marks, [QUEUE]) == snapshots


def test_a_file_that_looks_as_it_did_is_not_opened() -> None:
    assert suspects(marks_of(look()), [look()]) == []


def test_any_difference_from_outside_is_reason_to_open_it() -> None:
    marks = marks_of(look())

    different = [look(changed=2), look(inode=8), look(size=11)]

    assert suspects(marks, different) == different


def test_a_file_that_was_rewritten_with_the_same_content_is_no_news() -> None:
    marks = marks_of(look())

    snapshots, after = plan(marks, [Seen(look=look(changed=2), digest="a")])

    assert snapshots == []
    assert between(marks, after, [QUEUE]) == []
    assert suspects(after, [look(changed=2)]) == []


def test_a_file_that_changed_just_before_it_was_looked_at_is_opened_again() -> None:
    young = look(age_ns=SETTLED_NS - 1)

    marks = marks_of(young)

    assert suspects(marks, [young]) == [young]
    assert plan(marks, [Seen(look=young, digest="a")])[0] == []
    assert [one.path for one in plan(marks, [Seen(look=young, digest="b")])[0]] == [QUEUE.path]


def test_the_mark_of_a_file_that_is_gone_is_dropped_where_somebody_looked() -> None:
    marks = marks_of(look())
    elsewhere = Origin(stream="runforge.queue", place="/other", path="/other/queue.json")

    assert of_those_there(marks, [QUEUE], [look()]) == marks
    assert of_those_there(marks, [QUEUE], []) == {"/w": {}}
    assert of_those_there(marks, [elsewhere], []) == marks


@given(sizes=st.lists(st.integers(0, 50), max_size=30), most=st.integers(1, 60))
def test_tasks_hold_every_file_once_and_are_not_too_large(sizes: list[int], most: int) -> None:
    files = [
        Snapshot(stream="s", place="p", path=str(number), changed_ns=0, size=size) for number, size in enumerate(sizes)
    ]

    found = tasks(files, most_bytes=most)

    assert [one for task in found for one in task] == files
    assert all(len(task) == 1 or sum(one.size for one in task) <= most for task in found)
