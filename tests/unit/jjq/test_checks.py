"""Running a check: exit code, output, time-out, retries, and nobody left behind. Real processes, no jj."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queueyard.jjq.checks import Check, has_ended, output_of
from queueyard.jjq.records import Commit, Merge, Reason
from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.kernel.testing import FakeClock

if TYPE_CHECKING:
    from queueyard.jjq.records import CheckResult

MERGE = Merge(
    id=7,
    base=Commit(commit_id="b" * 40, change_id="base"),
    candidate=Commit(commit_id="c" * 40, change_id="candidate"),
    commit=Commit(commit_id="m" * 40, change_id="merge"),
)


def finish(check: Check) -> CheckResult:
    while (result := check.poll()) is None:
        SYSTEM_CLOCK.sleep(0.005)
    return result


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "000007.log"


def start(command: str, tmp_path: Path, log: Path, **options: object) -> Check:
    return Check(MERGE, command, folder=tmp_path, log=log, clock=SYSTEM_CLOCK, **options)  # type: ignore[arg-type]


def test_the_exit_code_of_the_shell_decides(tmp_path: Path, log: Path) -> None:
    passing, failing = finish(start("exit 0", tmp_path, log)), finish(start("exit 3", tmp_path, log))

    assert (passing.passed, passing.exit_code) == (True, 0)
    assert (failing.passed, failing.exit_code, failing.reason) == (False, 3, Reason.CHECK)


def test_stdout_and_stderr_go_to_the_log_in_order_and_only_the_latest_try_is_shown(tmp_path: Path, log: Path) -> None:
    finish(start("echo before", tmp_path, log))
    check = start("echo out; echo err >&2; echo more; exit 1", tmp_path, log)

    finish(check)

    assert output_of(log, check.output_from) == "out\nerr\nmore"
    text = log.read_text(encoding="utf-8")
    assert text.startswith(f"--- jjq: {'m' * 12}: echo before\nbefore\n--- jjq: exit code 0\n")
    assert has_ended(text.encode())


def test_of_a_long_output_the_end_is_shown(tmp_path: Path, log: Path) -> None:
    check = start("seq 100000; exit 1", tmp_path, log)

    finish(check)

    shown = output_of(log, check.output_from).splitlines()
    assert shown[0] == "[...]"
    assert shown[-1] == "100000"
    assert len(shown) < 20_000


def test_a_log_has_ended_only_after_its_last_line_says_so() -> None:
    assert not has_ended(b"")
    assert not has_ended(b"--- jjq: abc: make\nexit code 0\n")
    assert not has_ended(b"--- jjq: exit code 1\n--- jjq: abc, try 2: make\n")
    assert has_ended(b"x\n--- jjq: exit code -9\n")
    assert has_ended(b"--- jjq: timed out after 1 s\n")


def test_it_runs_in_its_folder_and_knows_its_item(tmp_path: Path, log: Path) -> None:
    finish(start("pwd > where; echo $JJQ_ITEM $JJQ_BASE $JJQ_CANDIDATE $JJQ_MERGE > what", tmp_path, log))

    assert (tmp_path / "where").read_text(encoding="utf-8").strip() == str(tmp_path)
    assert (tmp_path / "what").read_text(encoding="utf-8").split() == ["7", "b" * 40, "c" * 40, "m" * 40]


def test_secrets_are_kept_from_it_unless_named(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hush")
    monkeypatch.setenv("OTHER_TOKEN", "wanted")

    finish(start('echo "$SOME_TOKEN-$OTHER_TOKEN" > seen', tmp_path, log, keep=("OTHER_TOKEN",)))

    assert (tmp_path / "seen").read_text(encoding="utf-8") == "-wanted\n"


def test_what_takes_too_long_is_stopped(tmp_path: Path, log: Path) -> None:
    result = finish(start("sleep 1000", tmp_path, log, timeout_s=0.05, retries=5))

    assert (result.passed, result.timed_out, result.tries, result.reason) == (False, True, 1, Reason.TIMEOUT)
    assert log.read_text(encoding="utf-8").endswith("--- jjq: timed out after 0.05 s\n")


def test_a_failing_try_is_repeated_as_often_as_wanted(tmp_path: Path, log: Path) -> None:
    command = "echo x >> tries; test $(wc -l < tries) -ge 3"

    too_few = finish(start(command, tmp_path, log, retries=1))
    (tmp_path / "tries").unlink()
    enough = finish(start(command, tmp_path, log, retries=2))

    assert (too_few.passed, too_few.tries) == (False, 2)
    assert (enough.passed, enough.tries) == (True, 3)


def test_what_it_started_in_the_background_does_not_outlive_it(tmp_path: Path, log: Path) -> None:
    finish(start("sleep 1000 & echo $! > pid", tmp_path, log))

    pid = (tmp_path / "pid").read_text(encoding="utf-8").strip()
    state = Path(f"/proc/{pid}/stat")
    for _ in range(400):
        if not state.exists() or state.read_text(encoding="ascii").rpartition(")")[2].split()[0] in "ZX":
            return
        SYSTEM_CLOCK.sleep(0.005)
    pytest.fail("the child is still there")


def test_it_can_be_stopped_and_says_how_long_it_took(tmp_path: Path, log: Path) -> None:
    clock = FakeClock()
    check = Check(MERGE, "sleep 1000", folder=tmp_path, log=log, clock=clock)
    clock.advance(12)

    assert check.stop() == 12_000
    assert log.read_text(encoding="utf-8").endswith("--- jjq: stopped\n")
