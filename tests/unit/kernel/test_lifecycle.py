from __future__ import annotations

import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.lifecycle import Lifecycle, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@pytest.fixture
def lifecycle() -> Iterator[Lifecycle]:
    made = Lifecycle()
    yield made
    made.close()


def is_readable(lifecycle: Lifecycle) -> bool:
    return bool(select.select([lifecycle], [], [], 0)[0])


def test_a_new_one_runs(lifecycle: Lifecycle) -> None:
    assert lifecycle.phase is Phase.RUNNING
    assert lifecycle.running
    assert not is_readable(lifecycle)


def test_the_first_wish_drains_the_second_stops_and_more_change_nothing(lifecycle: Lifecycle) -> None:
    phases = []
    for _ in range(4):
        lifecycle.ask_to_stop()
        phases.append(lifecycle.phase)

    assert phases == [Phase.DRAINING, Phase.STOPPING, Phase.STOPPING, Phase.STOPPING]
    assert not lifecycle.running


def test_it_is_readable_after_a_change_until_that_is_acknowledged(lifecycle: Lifecycle) -> None:
    lifecycle.ask_to_stop()
    before = is_readable(lifecycle)

    phase = lifecycle.acknowledge()

    assert before
    assert phase is Phase.DRAINING
    assert not is_readable(lifecycle)


def test_waiting_ends_with_the_time_out(lifecycle: Lifecycle) -> None:
    assert lifecycle.wait(0) is Phase.RUNNING
    assert lifecycle.wait(-1) is Phase.RUNNING


def test_waiting_ends_with_a_change_in_another_thread(lifecycle: Lifecycle) -> None:
    thread = threading.Thread(target=lifecycle.ask_to_stop)
    thread.start()

    phase = lifecycle.wait()

    thread.join()
    assert phase is Phase.DRAINING


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_move_the_phase_and_the_old_handlers_come_back(lifecycle: Lifecycle, number: signal.Signals) -> None:
    before = signal.getsignal(number)

    with lifecycle.on_signals():
        os.kill(os.getpid(), number)
        first = lifecycle.wait()
        os.kill(os.getpid(), number)
        second = lifecycle.wait()

    assert (first, second) == (Phase.DRAINING, Phase.STOPPING)
    assert signal.getsignal(number) is before


def test_the_old_handlers_come_back_after_a_failure_too(lifecycle: Lifecycle) -> None:
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(ZeroDivisionError), lifecycle.on_signals():
        raise ZeroDivisionError

    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_refused_outside_the_main_thread(lifecycle: Lifecycle) -> None:
    told: list[str] = []

    def try_it() -> None:
        try:
            with lifecycle.on_signals():
                pass
        except RuntimeError as fault:
            told.append(str(fault))

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()

    assert told == ["signals arrive in the main thread only"]


def test_more_wishes_than_the_pipe_holds_do_not_block(lifecycle: Lifecycle) -> None:
    for _ in range(100_000):
        lifecycle.ask_to_stop()

    assert lifecycle.acknowledge() is Phase.STOPPING


def test_two_signals_in_the_middle_of_a_wish_are_never_forgotten() -> None:
    """Interrupts `ask_to_stop` at each of its byte codes in turn, as a signal handler would."""
    position = 0
    while (phase := phase_after_interruption_at(position)) is not Phase.DRAINING:
        assert phase is Phase.STOPPING
        position += 1

    # It ran through undisturbed once the position was behind its end.
    assert position > 5


def phase_after_interruption_at(position: int) -> Phase:
    lifecycle = Lifecycle()
    passed = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Callable[[FrameType, str, Any], Any] | None:
        nonlocal passed
        if frame.f_code is not Lifecycle.ask_to_stop.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == position + 1:
                lifecycle.ask_to_stop()
                lifecycle.ask_to_stop()
        return trace

    before = sys.gettrace()
    # Python 3.12 looks only here whether anybody wants to see byte codes.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        lifecycle.ask_to_stop()
    finally:
        sys.settrace(before)
    phase = lifecycle.phase
    lifecycle.close()
    return phase
