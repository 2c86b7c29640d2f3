"""Many checks at once, landing strictly in order. Pure.

A train is the front of the queue. Each car is merged onto the car ahead of it, so its check sees trunk with everything
that is to land before it. A car that failed stays in its place until all ahead of it have landed, for only then is its
failure final; meanwhile those behind are merged as if it were not there. When a car's base is no longer what stands
ahead of it, the car is reset and merged anew: so a failure costs those behind it, and nobody else.

The window says how far ahead to look. It halves when an item fails and grows by one when an item lands.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Phase(StrEnum):
    WAITING = "waiting"
    BUILT = "built"
    CHECKING = "checking"
    PASSED = "passed"
    FAILED = "failed"
    CONFLICTED = "conflicted"


#: in the way of nobody: those behind do not build on it
OUT = frozenset({Phase.FAILED, Phase.CONFLICTED})


class Car(msgspec.Struct, frozen=True, kw_only=True):
    """One item on its way."""

    id: int
    #: commit id of the candidate
    candidate: str
    phase: Phase = Phase.WAITING
    #: commit id that the candidate was merged onto
    base: str | None = None
    #: commit id of the merge
    merge: str | None = None


class Train(msgspec.Struct, frozen=True, kw_only=True):
    """The front of the queue, in order, on a trunk."""

    #: commit id
    trunk: str
    cars: tuple[Car, ...] = ()
    #: how many cars that are not out may be on their way
    window: int
    #: the window never grows beyond
    widest: int

    def car(self, number: int) -> Car | None:
        return next((car for car in self.cars if car.id == number), None)


class Step(StrEnum):
    BUILD = "build"
    CHECK = "check"
    LAND = "land"
    EJECT = "eject"


class Move(msgspec.Struct, frozen=True):
    """What to do next, with which item; to build, on which base."""

    step: Step
    id: int
    base: str | None = None


def start(trunk: str, *, jobs: int) -> Train:
    """An empty train. More than `jobs` may be on their way, since one that passed needs no worker while it waits."""
    return Train(trunk=trunk, window=jobs, widest=jobs if jobs == 1 else 2 * jobs)


def expected_bases(train: Train) -> Iterator[tuple[Car, str | None]]:
    """Each car of a settled train with what it is to stand on; None if that is not merged yet."""
    ahead: str | None = train.trunk
    for car in train.cars:
        yield car, ahead
        if car.phase not in OUT:
            ahead = car.merge


def reconcile(train: Train, *, trunk: str, queued: Mapping[int, str]) -> tuple[Train, list[int]]:
    """The train as the queue is now: id -> candidate. Also the ids whose running check is worth nothing any more.

    Gone items leave, changed ones start anew, new ones join at the end; who stands on what is no longer there is reset.
    """
    known = {car.id: car for car in train.cars}
    lost = [car.id for car in train.cars if car.phase is Phase.CHECKING and queued.get(car.id) != car.candidate]
    cars = tuple(
        known[number]
        if number in known and known[number].candidate == candidate
        else Car(id=number, candidate=candidate)
        for number, candidate in sorted(queued.items())
    )
    settled, more = settle(msgspec.structs.replace(train, trunk=trunk, cars=cars))
    return settled, [*lost, *more]


def settle(train: Train) -> tuple[Train, list[int]]:
    """Reset every car that does not stand on what is ahead of it; also which of them were being checked."""
    cars: list[Car] = []
    lost: list[int] = []
    ahead: str | None = train.trunk
    for car in train.cars:
        fits = car.phase is Phase.WAITING or car.base == ahead
        kept = car if fits else Car(id=car.id, candidate=car.candidate)
        lost += [car.id] if not fits and car.phase is Phase.CHECKING else []
        cars.append(kept)
        if kept.phase not in OUT:
            ahead = kept.merge
    return msgspec.structs.replace(train, cars=tuple(cars)), lost


def next_move(train: Train, *, free_workers: int) -> Move | None:
    """The most urgent thing to do, or None if there is only waiting. The train must be settled."""
    if train.cars and train.cars[0].phase is Phase.PASSED:
        return Move(Step.LAND, train.cars[0].id)
    if train.cars and train.cars[0].phase in OUT:
        return Move(Step.EJECT, train.cars[0].id)
    on_their_way = 0
    for car, base in expected_bases(train):
        if car.phase in OUT:
            continue
        if on_their_way >= train.window:
            return None
        on_their_way += 1
        # Merging costs a moment, checking costs a worker: first start what is merged, then merge the next.
        if car.phase is Phase.BUILT and free_workers > 0:
            return Move(Step.CHECK, car.id)
        if car.phase is Phase.WAITING and base is not None and free_workers > 0:
            return Move(Step.BUILD, car.id, base)
    return None


def built(train: Train, number: int, *, base: str, merge: str, conflict: bool) -> Train:
    phase = Phase.CONFLICTED if conflict else Phase.BUILT
    return _with(train, number, phase=phase, base=base, merge=merge)


def checking(train: Train, number: int) -> Train:
    return _with(train, number, phase=Phase.CHECKING)


def checked(train: Train, number: int, *, merge: str, passed: bool) -> tuple[Train, list[int]]:
    """A check ended. One of a merge that is no longer in the train says nothing."""
    car = train.car(number)
    if car is None or car.merge != merge or car.phase is not Phase.CHECKING:
        return train, []
    return settle(_with(train, number, phase=Phase.PASSED if passed else Phase.FAILED))


def landed(train: Train) -> Train:
    """The first car is trunk now."""
    head = train.cars[0]
    if head.merge is None or head.phase is not Phase.PASSED:
        raise ValueError(f"item {head.id} is {head.phase}: it cannot land")
    window = min(train.window + 1, train.widest)
    return msgspec.structs.replace(train, trunk=head.merge, cars=train.cars[1:], window=window)


def ejected(train: Train) -> Train:
    """The first car has failed for good."""
    head = train.cars[0]
    if head.phase not in OUT:
        raise ValueError(f"item {head.id} is {head.phase}: it cannot fail")
    return msgspec.structs.replace(train, cars=train.cars[1:], window=max(1, train.window // 2))


def _with(train: Train, number: int, **changes: object) -> Train:
    cars = tuple(msgspec.structs.replace(car, **changes) if car.id == number else car for car in train.cars)
    return msgspec.structs.replace(train, cars=cars)
