"""One lock, one holder, and everybody else is told who it is; races between processes are in promises/."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from queueyard.kernel import locks, proc
from queueyard.kernel.clock import SystemClock
from queueyard.kernel.errors import LockTimeout, StorageFailed
from queueyard.kernel.locks import FileLock, Holder
from queueyard.kernel.testing import FakeClock

HOLD_UNTIL_STDIN_ENDS = """
import pathlib, sys
from queueyard.kernel.locks import FileLock
sys.argv[0] = "queen"
with FileLock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(path: Path, *words: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD_UNTIL_STDIN_ENDS, str(path), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def test_the_lock_is_free_again_after_the_block(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"

    first = FileLock(path, timeout_s=0)
    held = [first.held]

    with first:
        held.append(first.held)
    held.append(first.held)

    assert held == [False, True, False]
    with FileLock(path, timeout_s=0) as second:
        assert second.held


def test_the_lock_is_free_again_after_a_failure_inside(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"

    with pytest.raises(ZeroDivisionError), FileLock(path):
        raise ZeroDivisionError

    with FileLock(path, timeout_s=0) as again:
        assert again.held


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock"), pytest.raises(LockTimeout):
        FileLock(tmp_path / "x.lock", timeout_s=0).acquire()


def test_one_object_cannot_hold_twice(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock") as lock, pytest.raises(RuntimeError, match="already held"):
        lock.acquire()


def test_releasing_what_is_not_held_is_harmless(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x.lock")

    lock.release()
    lock.acquire()
    lock.release()
    lock.release()

    assert not lock.held


def test_waiting_ends_at_the_time_out_and_not_before(tmp_path: Path) -> None:
    clock = FakeClock()

    with FileLock(tmp_path / "x.lock"), pytest.raises(LockTimeout, match=r"is locked after 2\.5 s: held by pid"):
        FileLock(tmp_path / "x.lock", timeout_s=2.5, clock=clock).acquire()

    assert 2.5 <= clock.monotonic() < 2.6


def test_without_a_time_out_it_waits_until_the_holder_is_done(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    waits = threading.Event()
    first = FileLock(path)
    first.acquire()

    class SignallingClock(SystemClock):
        def sleep(self, seconds: float) -> None:
            waits.set()
            super().sleep(seconds)

    got: list[bool] = []

    def wait_and_hold() -> None:
        with FileLock(path, timeout_s=None, clock=SignallingClock()) as second:
            got.append(second.held)

    thread = threading.Thread(target=wait_and_hold)
    thread.start()
    waits.wait()

    first.release()

    thread.join()
    assert got == [True]


def test_the_holder_is_known_by_pid_start_time_host_and_command(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with start_holder(path, "--token=abc") as child:
        holder = FileLock(path).holder()
        started = proc.identity_of(child.pid)
        child.communicate()

    assert holder is not None
    assert started is not None
    assert (holder.pid, holder.started) == (child.pid, started.started)
    assert holder.host == os.uname().nodename
    assert holder.command == f"queen {path}"[:80]
    assert "abc" not in holder.command


def test_the_error_names_the_holder_and_how_to_end_it(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with start_holder(path) as child:
        with pytest.raises(LockTimeout, match=f"held by pid {child.pid} on ") as caught:
            FileLock(path, timeout_s=0).acquire()
        child.communicate()

    assert caught.value.hint == f"Wait for it to finish, or end it: kill {child.pid}"
    assert caught.value.exit_code == 1


def test_the_lock_of_a_killed_holder_is_free_by_construction(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with start_holder(path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()

        assert path.read_bytes()  # its signature is still there, and means nothing
        assert FileLock(path).holder() is None
        with FileLock(path, timeout_s=0) as mine:
            assert mine.held


def test_a_signature_with_the_pid_of_another_process_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    alien = Holder(pid=os.getpid(), started="0-0", host=os.uname().nodename, command="queen", since="-")
    path.write_bytes(msgspec.json.encode(alien))

    assert FileLock(path).holder() is None


def test_a_holder_on_another_machine_is_believed_but_not_to_be_killed_here(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    alien = Holder(pid=1, started="0-0", host="elsewhere", command="queen", since="-")
    path.write_bytes(msgspec.json.encode(alien))
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)

        with pytest.raises(LockTimeout, match="pid 1 on elsewhere") as caught:
            FileLock(path, timeout_s=0).acquire()

    assert caught.value.hint == "Wait for it to finish, or end it."


def test_after_release_nobody_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"

    with FileLock(path) as lock:
        during = lock.holder()

    assert during is not None
    assert FileLock(path).holder() is None


@given(content=st.binary(max_size=60) | st.just(b'{"pid":1,"command":"\xff"}') | st.just(b"[" * 100_000))
def test_no_content_of_the_lock_file_keeps_anybody_from_being_told(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("lock") / "x.lock"
    path.write_bytes(content)
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)

        with pytest.raises(LockTimeout, match="held by another process"):
            FileLock(path, timeout_s=0).acquire()


def test_a_lock_file_that_was_deleted_meanwhile_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"

    with FileLock(path):
        path.unlink()

    with FileLock(path, timeout_s=0) as lock:
        assert lock.held
        assert path.exists()


def test_a_lock_file_that_is_deleted_between_opening_and_locking_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.lock"
    real = locks._try_flock
    opened: list[int] = []

    def somebody_deletes_it_first(descriptor: int) -> bool:
        if not opened:
            path.unlink()
        opened.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(locks, "_try_flock", somebody_deletes_it_first)

    with FileLock(path, timeout_s=60), pytest.raises(LockTimeout):
        FileLock(path, timeout_s=0).acquire()

    assert len(opened) == 3


def test_a_disk_that_refuses_the_signature_does_not_fail_whoever_is_done() -> None:
    memory = os.memfd_create("lock", os.MFD_ALLOW_SEALING)
    try:
        lock = FileLock(Path(f"/proc/self/fd/{memory}"), timeout_s=0)
        lock.acquire()
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # from now on nothing can be cut off it

        lock.release()

        fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not lock.held
    finally:
        os.close(memory)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="cannot lock") as caught:
        FileLock(tmp_path / "missing" / "x.lock").acquire()

    assert caught.value.hint == f"Check that the folder exists: ls -ld {tmp_path / 'missing'}"


def test_a_child_started_by_the_kernel_does_not_share_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with FileLock(path):
        child = proc.start(["sleep", "60"])

    try:
        with FileLock(path, timeout_s=0) as again:
            assert again.held
    finally:
        child.stop(grace_s=0)


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(25):
            with FileLock(tmp_path / "x.lock", timeout_s=60):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counter.read_text() == "100"
