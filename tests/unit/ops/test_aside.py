"""What is done aside is done: in order, all of it, and a failure is heard of."""

from __future__ import annotations

from contextlib import closing
from functools import partial
import threading
from typing import TYPE_CHECKING

import pytest

from queueyard.ops.aside import Aside, InThread, InTurn

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[InThread, InTurn])
def aside(request: pytest.FixtureRequest) -> Iterator[Aside]:
    with closing(request.param()) as made:
        yield made


def fail(text: str) -> None:
    raise OSError(text)


def test_it_is_done_in_the_order_of_asking(aside: Aside) -> None:
    done: list[int] = []

    for number in range(100):
        aside.do(partial(done.append, number))
    aside.finish()

    assert done == list(range(100))


def test_nobody_waits_for_a_thread_before_the_end() -> None:
    may_go_on = threading.Event()
    done: list[int] = []

    with closing(InThread()) as aside:
        aside.do(lambda: done.append(int(may_go_on.wait(30))))
        assert done == []
        may_go_on.set()

    assert done == [1]


def test_the_first_failure_is_told_once_and_the_rest_is_still_done() -> None:
    done: list[str] = []

    with closing(InThread()) as aside:
        for act in (partial(fail, "first"), partial(done.append, "between"), partial(fail, "second")):
            aside.do(act)
        with pytest.raises(OSError, match="first"):
            aside.finish()
        aside.do(partial(done.append, "after"))
        aside.finish()

    assert done == ["between", "after"]


def test_in_turn_a_failure_is_told_at_once() -> None:
    with pytest.raises(OSError, match="now"):
        InTurn().do(partial(fail, "now"))
