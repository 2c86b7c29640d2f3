"""Children that end when they should, and identities that never confuse two processes: with real processes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel import proc
from queueyard.kernel.proc import Identity, identity_of, is_alive, own_identity, wait_for_exit, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
signal.pause()
"""
FAMILY = """
import signal, subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(grandchild.stdout.readline().strip(), flush=True)
signal.pause()
"""


def start_python(program: str, *words: str) -> proc.Child:
    return proc.start([sys.executable, "-c", program, *words], stdout=subprocess.PIPE)


def first_line(child: proc.Child) -> bytes:
    assert child.stdout is not None
    with child.stdout as stream:
        return stream.readline().strip()


def all_of(child: proc.Child) -> bytes:
    assert child.stdout is not None
    with child.stdout as stream:
        return stream.read()


@pytest.fixture
def sleeper() -> Iterator[proc.Child]:
    child = proc.start(["sleep", "600"])
    yield child
    child.stop(grace_s=0)


class TestIdentity:
    def test_a_process_is_its_pid_and_its_start(self, sleeper: proc.Child) -> None:
        assert identity_of(sleeper.pid) == sleeper.identity
        assert is_alive(sleeper.identity)
        assert own_identity() == identity_of(os.getpid())
        assert own_identity() != sleeper.identity

    def test_another_process_with_the_same_pid_is_not_the_one(self, sleeper: proc.Child) -> None:
        assert not is_alive(Identity(sleeper.pid, own_identity().started + "0"))

    def test_an_identity_that_is_not_known_is_never_alive(self) -> None:
        assert not is_alive(Identity(os.getpid(), "unknown"))

    def test_a_zombie_is_not_alive(self) -> None:
        child = subprocess.Popen(["true"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert identity_of(child.pid) is None
        child.wait()

    @pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1])
    def test_a_pid_of_nobody_has_no_identity(self, pid: int) -> None:
        assert identity_of(pid) is None

    def test_a_command_name_with_spaces_and_parentheses_does_not_confuse(self, tmp_path: Path) -> None:
        odd = tmp_path / "a) R 1 (b"
        odd.symlink_to("/bin/sleep")
        child = proc.start([str(odd), "600"])

        identity = identity_of(child.pid)

        assert identity == child.identity
        assert identity.started.rpartition("-")[2].isdigit()
        child.stop(grace_s=0)

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_does_not_take_its_parents_identity(self) -> None:
        own_identity()
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(writer, str(own_identity().pid).encode())
            os._exit(0)
        os.waitpid(pid, 0)

        assert os.read(reader, 64) == str(pid).encode()
        os.close(reader)
        os.close(writer)


class TestStart:
    def test_a_child_leads_a_session_and_a_group_of_its_own(self, sleeper: proc.Child) -> None:
        assert os.getpgid(sleeper.pid) == sleeper.pid
        assert os.getsid(sleeper.pid) == sleeper.pid

    def test_without_an_environment_a_child_gets_ours_less_the_secrets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("QUEUEYARD_TEST_TOKEN", "x")
        monkeypatch.setenv("QUEUEYARD_TEST_PLAIN", "y")

        child = start_python("import os; print([os.environ.get('QUEUEYARD_TEST_' + n) for n in ('TOKEN', 'PLAIN')])")

        assert first_line(child) == b"[None, 'y']"
        assert child.wait() == 0

    def test_an_environment_that_is_given_is_the_whole_environment(self) -> None:
        child = proc.start(["env"], env={"API_TOKEN": "x"}, stdout=subprocess.PIPE)

        assert all_of(child) == b"API_TOKEN=x\n"
        assert child.wait() == 0

    def test_a_child_reads_nothing_unless_it_is_given_something(self) -> None:
        child = proc.start(["cat"], stdout=subprocess.PIPE)

        assert all_of(child) == b""
        assert child.wait() == 0

    def test_a_child_starts_in_the_folder_that_it_is_given(self, tmp_path: Path) -> None:
        child = proc.start(["pwd", "-P"], cwd=tmp_path, stdout=subprocess.PIPE)

        assert first_line(child) == os.fsencode(tmp_path.resolve())
        assert child.wait() == 0

    def test_a_program_that_is_not_there_is_an_os_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            proc.start([str(tmp_path / "missing")])

    def test_the_exit_code_is_told_and_a_signal_is_negative(self) -> None:
        codes = [proc.start(["sh", "-c", script]).wait() for script in ("exit 3", "kill -9 $$")]

        assert codes == [3, -signal.SIGKILL]

    def test_waiting_for_a_child_that_runs_on_gives_none(self, sleeper: proc.Child) -> None:
        assert sleeper.wait(0) is None
        assert sleeper.returncode is None


class TestStop:
    def test_term_is_enough_for_an_ordinary_child(self, sleeper: proc.Child) -> None:
        assert sleeper.stop(grace_s=60) == -signal.SIGTERM

    def test_a_child_that_cleans_up_within_the_grace_keeps_its_exit_code(self) -> None:
        program = (
            "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
            "print('ready', flush=True); signal.pause()"
        )
        child = start_python(program)
        first_line(child)

        assert child.stop(grace_s=60) == 7

    def test_a_child_that_ignores_term_is_killed_after_the_grace(self) -> None:
        child = start_python(STUBBORN)
        first_line(child)

        assert child.stop(grace_s=0.05) == -signal.SIGKILL
        assert not is_alive(child.identity)

    def test_what_the_child_started_does_not_survive_it(self) -> None:
        child = start_python(FAMILY, STUBBORN)
        grandchild = identity_of(int(first_line(child)))
        assert grandchild is not None

        code = child.stop(grace_s=60)

        assert code == -signal.SIGTERM
        assert wait_for_exit(grandchild, 60)

    def test_a_child_that_is_gone_still_has_its_group_stopped(self) -> None:
        child = start_python(FAMILY, STUBBORN)
        grandchild = identity_of(int(first_line(child)))
        assert grandchild is not None
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert is_alive(grandchild)

        assert child.stop(grace_s=0) == -signal.SIGKILL

        assert wait_for_exit(grandchild, 60)

    def test_stopping_twice_tells_the_same_code(self, sleeper: proc.Child) -> None:
        assert sleeper.stop(grace_s=60) == sleeper.stop(grace_s=60)

    def test_whoever_got_the_pid_of_an_ended_child_is_left_alone(self, sleeper: proc.Child) -> None:
        ended = proc.start(["true"])
        ended.wait()
        ended._process.pid = sleeper.pid  # as when the system gives the number out again

        ended.stop(grace_s=0)

        assert sleeper.wait(0.05) is None
        assert is_alive(sleeper.identity)


class TestStopStranger:
    def test_a_leader_ends_with_its_group(self) -> None:
        child = start_python(FAMILY, STUBBORN)
        grandchild = identity_of(int(first_line(child)))
        assert grandchild is not None

        gone = proc.stop_stranger(child.identity, grace_s=60)

        assert gone
        assert child.wait() == -signal.SIGTERM
        assert wait_for_exit(grandchild, 60)

    def test_one_that_leads_no_group_ends_alone(self) -> None:
        child = start_python(FAMILY, STUBBORN)
        grandchild = identity_of(int(first_line(child)))
        assert grandchild is not None

        gone = proc.stop_stranger(grandchild, grace_s=0.05)

        assert gone
        assert child.wait(0.05) is None
        child.stop(grace_s=0)

    def test_whoever_has_the_pid_of_a_process_that_is_gone_is_left_alone(self, sleeper: proc.Child) -> None:
        of_yesterday = Identity(sleeper.pid, "00000000-1")

        gone = proc.stop_stranger(of_yesterday, grace_s=0)

        assert gone
        assert sleeper.wait(0.05) is None


class TestWaitForExit:
    def test_it_tells_a_process_that_runs_from_one_that_ended(self, sleeper: proc.Child) -> None:
        running = wait_for_exit(sleeper.identity, 0)
        sleeper.stop(grace_s=0)

        assert not running
        assert wait_for_exit(sleeper.identity, 0)

    def test_another_process_with_the_same_pid_is_not_waited_for(self, sleeper: proc.Child) -> None:
        assert wait_for_exit(Identity(sleeper.pid, "00000000-1"), 0)

    def test_it_works_in_a_process_with_thousands_of_open_files(self, sleeper: proc.Child) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            assert max(opened) > 1023
            assert not wait_for_exit(sleeper.identity, 0)
        finally:
            for descriptor in opened:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestWithoutSecrets:
    @pytest.mark.parametrize(
        "name",
        [
            "GITHUB_TOKEN",
            "client_secret",
            "PGPASSWORD",
            "MYSQL_PWD",
            "BORG_PASSPHRASE",
            "AWS_ACCESS_KEY_ID",
            "OPENAI_API_KEY",
            "OPENAI_APIKEY",
            "SSH_AUTH_SOCK",
            "HTTP_AUTHORIZATION",
            "REDISCLI_AUTH",
            "REDIS_URL",
            "DATABASE_URL",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "DEPLOY_PRIVATE_KEY",
            "SESSION_COOKIE",
        ],
    )
    def test_a_secret_does_not_reach_a_child(self, name: str) -> None:
        assert without_secrets({name: "x"}) == {}

    @pytest.mark.parametrize(
        "name", ["PATH", "HOME", "LANG", "PWD", "OLDPWD", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "XAUTHORITY", "EDITOR"]
    )
    def test_what_is_no_secret_does(self, name: str) -> None:
        assert without_secrets({name: "x"}) == {name: "x"}

    def test_a_secret_that_is_asked_for_by_name_is_kept(self) -> None:
        assert without_secrets({"REDIS_URL": "x", "API_TOKEN": "y"}, keep=["REDIS_URL"]) == {"REDIS_URL": "x"}
