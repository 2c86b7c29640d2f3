"""Many checks at once: whatever the order in which they end, the result is that of one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.jjq import speculation
from queueyard.jjq.speculation import Car, Phase, Step, Train

if TYPE_CHECKING:
    from queueyard.jjq.speculation import Move

PASSES, FAILS, CONFLICTS, NEEDS_PREVIOUS = "passes", "fails", "conflicts", "needs the one before"


def contents(commit: str) -> tuple[int, ...]:
    """What is in a commit of this model: `t+1+3` is trunk with the items 1 and 3."""
    return tuple(int(part) for part in commit.split("+")[1:])


@dataclass
class World:
    """Items with their nature, and a runner that carries out every move at once."""

    natures: dict[int, str]
    train: Train
    queued: dict[int, str] = field(default_factory=dict)
    checking: dict[int, str] = field(default_factory=dict)
    landed: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    wasted: list[int] = field(default_factory=list)
    most_at_once: int = 0

    def passes(self, number: int, commit: str) -> bool:
        """Whether the tree of a commit passes: it does if none of its items spoils it."""
        inside = contents(commit)
        return all(self.natures[one] == PASSES or self._is_well(one, inside) for one in inside)

    def _is_well(self, one: int, inside: tuple[int, ...]) -> bool:
        return self.natures[one] == NEEDS_PREVIOUS and one - 1 in inside

    def conflicts(self, number: int, base: str) -> bool:
        return self.natures[number] == CONFLICTS and bool(contents(base))

    def step(self, *, jobs: int) -> bool:
        """One move, if there is one."""
        self.train, lost = speculation.reconcile(self.train, trunk=self.train.trunk, queued=self.queued)
        for number in lost:
            del self.checking[number]
            self.wasted.append(number)
        move = speculation.next_move(self.train, free_workers=jobs - len(self.checking))
        if move is None:
            return False
        self._carry_out(move)
        return True

    def _carry_out(self, move: Move) -> None:
        car = self.train.car(move.id)
        assert car is not None
        if move.step is Step.BUILD:
            assert move.base is not None
            conflict = self.conflicts(move.id, move.base)
            merge = f"{move.base}+{move.id}"
            self.train = speculation.built(self.train, move.id, base=move.base, merge=merge, conflict=conflict)
        elif move.step is Step.CHECK:
            assert car.merge is not None
            self.checking[move.id] = car.merge
            self.most_at_once = max(self.most_at_once, len(self.checking))
            self.train = speculation.checking(self.train, move.id)
        elif move.step is Step.LAND:
            assert car.base == self.train.trunk
            assert car.merge is not None
            assert self.passes(move.id, car.merge)
            self.train = speculation.landed(self.train)
            self.landed.append(move.id)
            del self.queued[move.id]
        else:
            assert car.base == self.train.trunk
            self.train = speculation.ejected(self.train)
            self.failed.append(move.id)
            del self.queued[move.id]

    def end_check(self, number: int) -> None:
        merge = self.checking.pop(number)
        passed = self.passes(number, merge)
        self.train, lost = speculation.checked(self.train, number, merge=merge, passed=passed)
        for other in lost:
            del self.checking[other]
            self.wasted.append(other)

    def run(self, choose: list[int], *, jobs: int) -> None:
        """Until nothing is left; `choose` says which running check ends next."""
        choices = iter(choose)
        for _ in range(10_000):
            if self.step(jobs=jobs):
                continue
            if not self.checking:
                return
            running = sorted(self.checking)
            self.end_check(running[next(choices, 0) % len(running)])
        raise AssertionError("it does not come to an end")


def world(natures: list[str], jobs: int) -> World:
    numbered = dict(enumerate(natures, 1))
    queued = {number: f"c{number}" for number in numbered}
    return World(natures=numbered, train=speculation.start("t", jobs=jobs), queued=queued)


def one_after_the_other(natures: list[str]) -> tuple[list[int], list[int]]:
    """What the spec's run makes of these items."""
    alone = world(natures, 1)
    trunk = "t"
    landed, failed = [], []
    for number in alone.natures:
        merge = f"{trunk}+{number}"
        if not alone.conflicts(number, trunk) and alone.passes(number, merge):
            landed.append(number)
            trunk = merge
        else:
            failed.append(number)
    return landed, failed


natures = st.lists(st.sampled_from([PASSES, PASSES, FAILS, CONFLICTS, NEEDS_PREVIOUS]), max_size=9)


@given(natures, st.integers(1, 5), st.lists(st.integers(0, 9), max_size=80))
def test_the_same_items_land_and_fail_as_one_after_the_other(kinds: list[str], jobs: int, choose: list[int]) -> None:
    found = world(kinds, jobs)

    found.run(choose, jobs=jobs)

    assert (found.landed, found.failed) == one_after_the_other(kinds)
    assert found.most_at_once <= jobs
    assert found.queued == {}


@given(st.integers(1, 12), st.integers(1, 5), st.lists(st.integers(0, 9), max_size=80))
def test_where_nothing_fails_no_check_is_wasted(count: int, jobs: int, choose: list[int]) -> None:
    found = world([PASSES] * count, jobs)

    found.run(choose, jobs=jobs)

    assert found.wasted == []
    assert found.landed == list(range(1, count + 1))


@given(natures, st.integers(2, 4), st.lists(st.integers(0, 9), max_size=40), st.data())
def test_items_that_change_or_go_while_it_runs_never_land_as_they_were(
    kinds: list[str], jobs: int, choose: list[int], data: st.DataObject
) -> None:
    found = world(kinds, jobs)
    choices = iter(choose)
    changed: set[int] = set()

    for _ in range(300):
        if bool(found.queued) and data.draw(st.booleans(), label="somebody meddles"):
            number = data.draw(st.sampled_from(sorted(found.queued)), label="with")
            if number in changed:
                found.queued.pop(number)
            else:
                found.queued[number] = f"d{number}"
                changed.add(number)
            found.train, lost = speculation.reconcile(found.train, trunk=found.train.trunk, queued=found.queued)
            for one in lost:
                found.checking.pop(one)
        car = next((car for car in found.train.cars if car.phase is not Phase.WAITING), None)
        assert car is None or car.candidate == found.queued[car.id]
        if not found.step(jobs=jobs):
            if not found.checking:
                break
            running = sorted(found.checking)
            found.end_check(running[next(choices, 0) % len(running)])

    assert found.landed == sorted(found.landed)


def test_a_trunk_that_moved_resets_everybody() -> None:
    car = Car(id=1, candidate="c1", phase=Phase.CHECKING, base="t", merge="t+1")
    behind = Car(id=2, candidate="c2", phase=Phase.PASSED, base="t+1", merge="t+1+2")
    train = Train(trunk="t", cars=(car, behind), window=4, widest=8)

    moved, lost = speculation.reconcile(train, trunk="u", queued={1: "c1", 2: "c2"})

    assert lost == [1]
    assert [one.phase for one in moved.cars] == [Phase.WAITING, Phase.WAITING]


def test_a_failure_resets_only_those_behind_it() -> None:
    cars = tuple(
        Car(id=number, candidate=f"c{number}", phase=Phase.CHECKING, base=base, merge=f"{base}+{number}")
        for number, base in ((1, "t"), (2, "t+1"), (3, "t+1+2"))
    )
    train = Train(trunk="t", cars=cars, window=4, widest=8)

    after, lost = speculation.checked(train, 2, merge="t+1+2", passed=False)

    assert lost == [3]
    assert [car.phase for car in after.cars] == [Phase.CHECKING, Phase.FAILED, Phase.WAITING]
    assert speculation.next_move(after, free_workers=1) == speculation.Move(Step.BUILD, 3, "t+1")


def test_the_window_halves_on_failure_and_grows_on_success() -> None:
    failed = Train(
        trunk="t", cars=(Car(id=1, candidate="c", phase=Phase.FAILED, base="t", merge="m"),), window=5, widest=8
    )
    passed = Train(
        trunk="t", cars=(Car(id=1, candidate="c", phase=Phase.PASSED, base="t", merge="m"),), window=8, widest=8
    )

    assert speculation.ejected(failed).window == 2
    assert speculation.ejected(speculation.Train(trunk="t", cars=failed.cars, window=1, widest=8)).window == 1
    assert speculation.landed(passed).window == 8
    assert speculation.landed(Train(trunk="t", cars=passed.cars, window=3, widest=8)).window == 4


def test_only_what_passed_can_land_and_only_what_failed_can_be_ejected() -> None:
    train = Train(
        trunk="t", cars=(Car(id=1, candidate="c", phase=Phase.BUILT, base="t", merge="m"),), window=1, widest=1
    )

    with pytest.raises(ValueError, match="cannot land"):
        speculation.landed(train)
    with pytest.raises(ValueError, match="cannot fail"):
        speculation.ejected(train)


def test_a_check_of_a_merge_that_is_no_longer_in_the_train_says_nothing() -> None:
    train = Train(
        trunk="t", cars=(Car(id=1, candidate="c", phase=Phase.CHECKING, base="t", merge="new"),), window=1, widest=1
    )

    assert speculation.checked(train, 1, merge="old", passed=True) == (train, [])
    assert speculation.checked(train, 2, merge="new", passed=True) == (train, [])
