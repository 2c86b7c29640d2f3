"""The filter program is one that the kernel can read: its jumps stay inside, and every path ends in a verdict."""

from __future__ import annotations

from itertools import product
import platform
import struct

import pytest

from queueyard.panqueue.executors import seccomp, syscalls

_RETURN, _ALLOW = 0x06, 0x7FFF0000
_MOST_STEPS = 4_096

ALL_KINDS = [
    seccomp.Allowed(processes=processes, programs=programs, tcp=tcp, metadata=metadata, signals_to=pid)
    for processes, programs, tcp, metadata, pid in product(
        [False, True], [False, True], [False, True], [False, True], [None, 7]
    )
]


def verdict(program: bytes, number: int, *arguments: int, machine: str | None = None) -> int:
    """What the kernel would decide about a call: the program, run by hand."""
    audit = syscalls.MACHINES[machine or platform.machine()][1]
    data = struct.pack("=iIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                value &= operand
            case 0x06:
                return int(operand)
            case 0x15:
                at += if_true if value == operand else if_false
            case 0x25:
                at += if_true if value > operand else if_false
            case 0x45:
                at += if_true if value & operand else if_false
            case _:
                pytest.fail(f"unknown step {code:#x}")


def is_allowed(allowed: seccomp.Allowed, name: str, *arguments: int) -> bool:
    number = syscalls.number_of(name)
    assert number is not None
    return verdict(seccomp.program(allowed), number, *arguments) == _ALLOW


@pytest.fixture(autouse=True)
def _needs_a_known_machine() -> None:
    if not syscalls.is_known_machine():
        pytest.skip(f"no numbers of system calls for {platform.machine()}")


@pytest.mark.parametrize("machine", syscalls.MACHINES)
@pytest.mark.parametrize("allowed", ALL_KINDS, ids=str)
def test_every_call_gets_a_verdict(allowed: seccomp.Allowed, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program = seccomp.program(allowed)

    assert len(program) // 8 <= _MOST_STEPS
    for number in range(syscalls.NEWEST + 2):
        assert verdict(program, number, machine=machine) & 0xFFFF0000 in {_ALLOW, 0x00050000}


def test_another_machine_and_the_x32_way_in_are_deadly() -> None:
    program = seccomp.program(seccomp.Allowed())
    other = next(name for name in syscalls.MACHINES if name != platform.machine())

    assert verdict(program, 1, machine=other) == 0x80000000
    assert verdict(program, 0x40000000 | 1) == 0x80000000


def test_a_call_that_nobody_has_looked_at_does_not_exist() -> None:
    assert verdict(seccomp.program(seccomp.Allowed()), syscalls.NEWEST + 1) == 0x00050000 | 38


def test_sockets_are_tcp_or_none() -> None:
    tcp, none = seccomp.Allowed(tcp=True), seccomp.Allowed()
    stream, datagram, nonblocking, multipath = 1, 2, 0x800, 262

    assert is_allowed(tcp, "socket", 2, stream, 0)
    assert is_allowed(tcp, "socket", 10, stream | nonblocking, 6)
    for family, kind, protocol in (
        (2, datagram, 0),
        (2, stream, multipath),
        (1, stream, 0),
        (16, 3, 0),
        (40, stream, 0),
    ):
        assert not is_allowed(tcp, "socket", family, kind, protocol)
    assert not is_allowed(none, "socket", 2, stream, 0)


def test_threads_are_allowed_and_processes_only_if_asked_for() -> None:
    thread, process, namespace = 0x003D0F00, 17, 0x10000000 | 17

    assert is_allowed(seccomp.Allowed(), "clone", thread)
    assert not is_allowed(seccomp.Allowed(), "clone", process)
    assert is_allowed(seccomp.Allowed(processes=True), "clone", process)
    assert not is_allowed(seccomp.Allowed(processes=True), "clone", namespace)


def test_signals_go_to_oneself_only_where_others_can_be_seen() -> None:
    alone = seccomp.Allowed(signals_to=7)

    assert is_allowed(alone, "kill", 7, 15)
    assert is_allowed(alone, "tgkill", 7, 8, 15)
    for target in (1, 0, 0xFFFFFFFF, 8):
        assert not is_allowed(alone, "kill", target, 9)
    assert not is_allowed(alone, "tkill", 7, 9)
    assert is_allowed(seccomp.Allowed(), "kill", 1, 9)


def test_limits_of_others_cannot_be_changed() -> None:
    assert is_allowed(seccomp.Allowed(), "prlimit64", 0)
    assert not is_allowed(seccomp.Allowed(), "prlimit64", 1)
