from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.kernel.testing import FakeClock
from queueyard.queen.waiting import FileWatch, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Scripted(FakeClock):
    """At given seconds something happens."""

    def __init__(self) -> None:
        super().__init__()
        self._script: list[tuple[float, Callable[[], object]]] = []

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self._script.append((seconds, act))

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        due = [act for when, act in self._script if when <= self.monotonic()]
        self._script = [(when, act) for when, act in self._script if when > self.monotonic()]
        for act in due:
            act()


def append(path: Path) -> Callable[[], None]:
    def act() -> None:
        with path.open("a") as stream:
            stream.write("x")

    return act


# --- a watch ---------------------------------------------------------------------------------------------------------


def test_a_watch_wakes_when_one_of_its_files_changes(tmp_path: Path) -> None:
    clock = Scripted()
    watch = FileWatch([tmp_path / "a", tmp_path / "b"], clock)
    clock.at(3.0, append(tmp_path / "b"))

    assert watch.wait(10.0)
    assert 3.0 <= clock.monotonic() < 3.2


def test_a_watch_gives_up_in_time(tmp_path: Path) -> None:
    clock = FakeClock()

    assert not FileWatch([tmp_path / "a"], clock).wait(2.0)
    assert 2.0 <= clock.monotonic() < 2.1


def test_what_changed_before_the_wait_is_not_missed(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = FileWatch([tmp_path / "a"], clock)
    append(tmp_path / "a")()

    assert watch.wait(0)
    assert not watch.wait(0)
    assert clock.monotonic() == 0


def test_a_file_that_comes_goes_or_is_replaced_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    watch = FileWatch([path], FakeClock())

    path.write_text("x")
    came = watch.wait(0)
    other = tmp_path / "other"
    other.write_text("x")
    other.rename(path)
    replaced = watch.wait(0)
    path.unlink()

    assert (came, replaced, watch.wait(0)) == (True, True, True)


def test_a_watch_without_a_limit_waits_as_long_as_it_takes(tmp_path: Path) -> None:
    clock = Scripted()
    clock.at(10_000.0, append(tmp_path / "a"))

    assert FileWatch([tmp_path / "a"], clock).wait(None)
    assert clock.monotonic() >= 10_000.0


# --- waiting for an answer -------------------------------------------------------------------------------------------


def test_an_answer_that_is_there_is_given_at_once(tmp_path: Path) -> None:
    clock = FakeClock()

    assert wait_until(lambda: ["it"], tmp_path / "a", timeout_s=5.0, clock=clock) == ["it"]
    assert clock.monotonic() == 0


def test_it_is_asked_again_only_when_the_file_changed(tmp_path: Path) -> None:
    clock = Scripted()
    path = tmp_path / "a"
    asked: list[float] = []
    clock.at(2.0, append(path))
    clock.at(4.0, append(path))

    def ask() -> bool:
        asked.append(clock.monotonic())
        return len(asked) == 3

    assert wait_until(ask, path, timeout_s=None, clock=clock)
    assert [int(when) for when in asked] == [0, 2, 4]


def test_what_changes_while_it_is_asked_is_not_missed(tmp_path: Path) -> None:
    clock = FakeClock()
    asked: list[float] = []

    def ask() -> bool:
        asked.append(clock.monotonic())
        if len(asked) == 1:
            append(tmp_path / "a")()
        return len(asked) == 2

    assert wait_until(ask, tmp_path / "a", timeout_s=60.0, clock=clock)
    assert asked == [0, 0]


def test_when_the_time_is_up_it_is_asked_once_more_and_that_answer_counts(tmp_path: Path) -> None:
    clock = FakeClock()
    asked: list[float] = []

    def ask() -> list[str]:
        asked.append(clock.monotonic())
        return []

    assert wait_until(ask, tmp_path / "a", timeout_s=5.0, clock=clock) == []
    assert [round(when, 1) for when in asked] == [0.0, 5.0]


def test_no_time_at_all_means_to_ask_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask() -> bool:
        asked.append(1)
        return False

    assert wait_until(ask, tmp_path / "a", timeout_s=0.0, clock=FakeClock()) is False
    assert asked == [1]


def test_what_comes_true_by_time_alone_is_asked_for_regularly(tmp_path: Path) -> None:
    clock = FakeClock()

    answer = wait_until(lambda: clock.monotonic() >= 7.5, tmp_path / "a", timeout_s=None, clock=clock, recheck_s=1.0)

    assert answer
    assert 7.5 <= clock.monotonic() < 8.6
