"""One check for many: bisection finds a culprit, and only what was checked counts as good."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from queueyard.jjq import batching
from queueyard.jjq.batching import Batch


def bisect(batch: Batch, passes: list[bool]) -> tuple[Batch, list[int]]:
    """Run a batch; passes[n] says whether the prefix of length n passes."""
    probes: list[int] = []
    while (length := batching.probe(batch)) is not None:
        probes.append(length)
        batch = batching.passed(batch, length) if passes[length] else batching.failed(batch, length)
    return batch, probes


@given(st.integers(1, 64), st.data())
def test_one_bad_item_is_found_with_few_checks(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(1, count))
    passes = [length < bad for length in range(count + 1)]

    batch, probes = bisect(Batch(ids=tuple(range(101, 101 + count))), passes)

    assert batching.culprit(batch) == 100 + bad
    assert batch.good == bad - 1
    assert len(probes) <= 1 + math.ceil(math.log2(count)) if count > 1 else len(probes) == 1


@given(st.integers(1, 64))
def test_a_good_batch_needs_one_check(count: int) -> None:
    batch, probes = bisect(Batch(ids=tuple(range(count))), [True] * (count + 1))

    assert probes == [count]
    assert batching.culprit(batch) is None
    assert batch.good == count


@given(st.lists(st.booleans(), min_size=2, max_size=20))
def test_whatever_the_checks_say_a_good_prefix_passed_and_the_culprit_stands_right_behind_it(
    answers: list[bool],
) -> None:
    passes = [True, *answers[1:]]

    batch, probes = bisect(Batch(ids=tuple(range(1, len(passes)))), passes)

    assert batch.good == 0 or (passes[batch.good] and batch.good in probes)
    if batch.bad is not None:
        assert not passes[batch.bad]
        assert batch.bad in probes
        assert batching.culprit(batch) == batch.good + 1
