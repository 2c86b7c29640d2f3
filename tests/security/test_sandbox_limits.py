"""Bombs go off in the sandbox and nowhere else; a machine that cannot hold a policy says so before it runs a job."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from executor_crews import QUEUE, crew_of, held, need, until_there
import executor_handlers as handlers
from queueyard.kernel.proc import identity_of, wait_for_exit
from queueyard.panqueue.executors import Policy, PoolSettings, Sandbox
from queueyard.panqueue.executors.errors import BadPolicy, ChildDied, PolicyRefused, StartFailed
from queueyard.panqueue.executors.machine import Machine, this_machine
from sandbox_driver import machine_of
from servers import in_loop, python

if TYPE_CHECKING:
    from collections.abc import Callable

_ORDINARY_USER = 65_534

pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.fixture(params=["namespaces", "landlock"])
def machine(request: pytest.FixtureRequest) -> Machine:
    need(request.param)
    return machine_of(request.param)


@pytest.mark.parametrize("handler", [handlers.add, handlers.add_async, handlers.multiply.handler])
def test_handlers_work_as_they_do_elsewhere(machine: Machine, handler: Callable[..., Any]) -> None:
    @in_loop
    async def run() -> None:
        async with crew_of(Sandbox(Policy(), machine=machine), handler) as crew:
            assert await crew.run(held({"a": 2, "b": 3})) in ({"value": 5}, 6)

    run()


def test_a_module_beside_the_handler_has_to_be_named_and_is_then_found(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 5\n")
    (tmp_path / "handler_with_neighbour.py").write_text("import neighbour\ndef handle(job): return neighbour.VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("neighbour", "handler_with_neighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import handler_with_neighbour  # type: ignore[import-not-found]

    @in_loop
    async def run() -> None:
        async with crew_of(Sandbox(Policy(), machine=machine), handler_with_neighbour.handle) as crew:
            with pytest.raises(StartFailed, match="the policy has to name that folder in read"):
                await crew.run(held())
        named = Policy(read=(str(tmp_path),))
        async with crew_of(Sandbox(named, machine=machine), handler_with_neighbour.handle) as crew:
            assert await crew.run(held()) == 5

    run()


def test_a_job_that_takes_more_processor_time_than_it_may_is_killed(machine: Machine) -> None:
    @in_loop
    async def run() -> None:
        async with crew_of(Sandbox(Policy(cpu_s=1), machine=machine), handlers.spin) as crew:
            with pytest.raises(ChildDied, match="SIGKILL"):
                await crew.run(held("spin"))

            assert await crew.run(held("rest")) == "fine"
            assert await crew.run(held("rest")) == "fine"
            assert crew.pool.started == 3, "each child runs one job, because the kernel counts for life"

    run()


def test_a_sandboxed_handler_that_ignores_cancellation_is_killed(machine: Machine, tmp_path: Path) -> None:
    @in_loop
    async def run() -> None:
        settings = PoolSettings(cancel_grace_s=0.1)
        sandbox = Sandbox(Policy(write=(str(tmp_path),)), settings, machine=machine)
        async with crew_of(sandbox, handlers.ignore_cancellation) as crew:
            running = asyncio.ensure_future(crew.run(held(str(tmp_path / "here"))))
            await until_there(tmp_path / "here")
            (child,) = [found for pid in crew.pool.pids if (found := identity_of(pid)) is not None]

            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

            assert wait_for_exit(child, 20)

    run()


def test_a_worker_that_is_killed_leaves_no_child_behind(machine: Machine, tmp_path: Path) -> None:
    program = """
import asyncio, sys
from executor_crews import QUEUE, held, until_there
import executor_handlers, msgspec, pathlib
from queueyard.panqueue.executors import Policy, Sandbox
from queueyard.panqueue.executors.machine import Machine
async def main():
    place = pathlib.Path(sys.argv[1]) / "here"
    sandbox = Sandbox(Policy(write=(sys.argv[1],)), machine=msgspec.json.decode(sys.argv[2], type=Machine))
    crew = sandbox.crew(QUEUE, executor_handlers.ignore_cancellation)
    running = asyncio.ensure_future(crew.run(held(str(place))))
    await until_there(place)
    print(*crew.pool.pids, flush=True)
    await running
asyncio.run(main())
"""
    told = msgspec.json.encode(machine).decode()
    worker = python(program, str(tmp_path), told, PYTHONPATH=os.pathsep.join(sys.path))
    assert worker.stdout is not None
    child = identity_of(int(worker.stdout.readline()))
    assert child is not None

    worker.kill()
    worker.wait()
    worker.stdout.close()

    assert wait_for_exit(child, 20)


@in_loop
async def test_a_policy_that_names_a_missing_path_is_refused() -> None:
    with pytest.raises(BadPolicy, match="/no/such/place does not exist"):
        Sandbox(Policy(read=("/no/such/place",))).crew(QUEUE, handlers.add)


@in_loop
async def test_root_cannot_have_processes_counted_and_is_told_so() -> None:
    here = msgspec.structs.replace(this_machine(), bubblewrap="/usr/bin/bwrap", is_root=True)

    with pytest.raises(PolicyRefused, match="the kernel does not limit root"):
        Sandbox(Policy(processes=1), machine=here).crew(QUEUE, handlers.add)


# --- programs and processes: an ordinary user, in namespaces -------------------------------------------------------


def test_an_ordinary_user_may_start_the_programs_that_are_named_and_no_more_processes_than_that() -> None:
    answer = _as_ordinary_user(
        """
policy = Policy(run=("/bin/echo",), processes=2, memory_mb=256)
async def main():
    told = {}
    async with crew_of(Sandbox(policy), executor_handlers.run_program) as crew:
        told["named"] = await crew.run(held(["/bin/echo", "hello"]))
        for name in ("/bin/cat", "/usr/bin/env"):
            try:
                told[name] = await crew.run(held([name, "/dev/null"]))
            except PanqueueError as fault:
                told[name] = f"refused: {fault}"
    async with crew_of(Sandbox(policy), executor_handlers.fork_and_wait) as crew:
        told["bomb"] = await crew.run(held(100))
    print(json.dumps(told))
"""
    )

    assert answer["named"] == "hello\n"
    assert answer["/bin/cat"].startswith("refused: [Errno 13]")
    assert answer["/usr/bin/env"].startswith("refused: [Errno 13]")
    assert 2 <= answer["bomb"] <= 10, "a few threads of the child itself are counted too"


def test_without_bubblewrap_on_the_path_the_weaker_level_is_told_and_the_stronger_policy_refused(
    tmp_path: Path,
) -> None:
    for name in ("true", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")

    _is_refused(_told_by("", PATH=str(tmp_path)), "bubblewrap is not installed")


def test_where_namespaces_are_forbidden_the_weaker_level_is_told_and_the_stronger_policy_refused() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    forbid = """
from queueyard.panqueue.executors import seccomp
seccomp.load(seccomp.only_refusing("unshare", "mount", "clone3", "pivot_root"))
"""

    _is_refused(_told_by(forbid), "bubblewrap may not make namespaces here")


def _is_refused(told: dict[str, Any], why: str) -> None:
    assert told["level"] == ("landlock" if this_machine().landlock >= 3 else "none")
    assert why in told["trouble"]
    assert "- net: " in told["refused"]


def _told_by(before: str, **environment: str) -> dict[str, Any]:
    """What a process that runs `before` says about this machine and a policy with a host."""
    program = f"""
import json
{before}
from queueyard.panqueue.executors.guarantees import level, of_sandbox, refuse_what_is_not_held
from queueyard.panqueue.executors.machine import this_machine
from queueyard.panqueue.executors.policy import Policy
from queueyard.panqueue.errors import PanqueueError
here = this_machine()
try:
    refuse_what_is_not_held(of_sandbox(Policy(net=("example.org:443",)), here))
except PanqueueError as fault:
    print(json.dumps({{"level": level(here), "trouble": here.trouble, "refused": str(fault)}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | environment, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _as_ordinary_user(main: str) -> dict[str, Any]:
    """Run a program in the sandbox's terms as somebody who is not root; skipped where that cannot be."""
    need("namespaces")
    head = """
import asyncio, json
from executor_crews import crew_of, held
import executor_handlers
from queueyard.panqueue.errors import PanqueueError
from queueyard.panqueue.executors import Policy, Sandbox
"""
    root = os.geteuid() == 0
    tests = Path(__file__).parents[1]
    packages = [path for path in sys.path if Path(path).name == "site-packages"]
    done = subprocess.run(
        ["/usr/bin/python3" if root else sys.executable, "-c", f"{head}{main}asyncio.run(main())"],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(tests.parent / "src"), str(tests), *packages]),
        },
        cwd="/",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **({"user": _ORDINARY_USER, "group": _ORDINARY_USER, "extra_groups": []} if root else {}),  # type: ignore[call-overload]
    )
    if "No module named" in done.stderr:
        pytest.skip(f"an ordinary user cannot use this Python's packages: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
