"""A queue at work under kill -9: daemons and commands die at random points, and afterwards everything must add up.

Children are forked from the test and call runforge's own functions, which is as deadly as the script and ten times
faster. Runs are never killed: each one notes when it starts and ends, and whether it met itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
import os
from pathlib import Path
import signal
import sys
import time
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.lifecycle import Lifecycle
from queueyard.runforge.doctor import examine
from queueyard.runforge.records import ENDED, JobState
from queueyard.runforge.rules import latest_by_run
from queueyard.runforge.service import RunForge, open_sweep
from queueyard.runforge.worker import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable
    import random

    from runforge_scenarios import Yard

#: a run notes itself; one that is there already at its start runs twice at the same time
_RUN = """
mkdir "busy/$RUNFORGE_RUN_ID" || echo "$RUNFORGE_RUN_ID" >> overlaps
sleep 0.0$((RANDOM_ % 9))
echo "$RUNFORGE_RUN_ID" >> ran
rmdir "busy/$RUNFORGE_RUN_ID"
exit $CODE
"""
_LONGEST_LIFE_S = 0.12
_MOST_WAITING = 150
_ALL_OVER_WITHIN_S = 120.0


@dataclass
class Storm:
    """One workspace, many deaths."""

    yard: Yard
    chance: random.Random
    #: runs whose enqueueing was acknowledged
    accepted: set[str] = field(default_factory=set)
    daemon_kills: int = 0
    command_kills: int = 0
    _made: int = 0

    def __post_init__(self) -> None:
        (self.yard.root / "busy").mkdir()

    # --- the storm ---------------------------------------------------------------------------------------------------

    def rage(self, kills: int) -> None:
        """Kill so many daemons and commands, in turn, at moments left to chance."""
        daemon = self._fork(self._serve)
        while self.daemon_kills + self.command_kills < kills:
            if self.chance.random() < 0.5:
                time.sleep(self.chance.uniform(0, _LONGEST_LIFE_S))
                self._kill(daemon)
                self.daemon_kills += 1
                daemon = self._fork(self._serve)
            else:
                self._disturb()
        self._kill(daemon)

    def calm(self) -> None:
        """Let a last daemon finish everything; it is stopped as it should be."""
        forge = self._forge()
        for group_id in list(forge.store.look().group_jobs):
            forge.resume_group(group_id)
        daemon = self._fork(self._serve)
        deadline = time.monotonic() + _ALL_OVER_WITHIN_S
        while any(job.state not in ENDED for job in forge.store.look().jobs.values()):
            if time.monotonic() > deadline:
                left = [job for job in forge.store.look().jobs.values() if job.state not in ENDED]
                self._kill(daemon)
                raise AssertionError(f"{len(left)} jobs never ended, for example {left[0]}")
            time.sleep(0.02)
        while self.yard.daemon_json()["pid"] != daemon:
            time.sleep(0.02)  # it was so quick to find nothing to do that it does not listen to signals yet
        os.kill(daemon, signal.SIGTERM)
        _, status = os.waitpid(daemon, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the last daemon did not stop by itself"

    # --- what must hold ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every accepted run ended, none ran twice at the same time, and all files say the same."""
        root = self.yard.root
        assert not (root / "overlaps").exists(), (root / "overlaps").read_text()
        assert list((root / "busy").iterdir()) == []
        states = self.yard.states()
        lost = self.accepted - set(states)
        assert not lost, f"accepted, but not in the queue: {sorted(lost)[:5]}"
        ran = set((root / "ran").read_text().split())
        untrue = {run for run, state in states.items() if state == "succeeded"} - ran
        assert not untrue, f"called succeeded, but never ran: {sorted(untrue)[:5]}"
        self._check_groups()
        assert examine(self._forge()) == []

    def _check_groups(self) -> None:
        forge = self._forge()
        state = forge.store.look()
        assert {job["job_id"]: job["state"] for job in self.yard.jobs()} == {
            name: str(job.state) for name, job in state.jobs.items()
        }
        for group_id in state.group_jobs:
            group = self.yard.group(group_id)
            told = {run["run_id"]: run["status"] for run in group["runs"]}
            for run_id, job in latest_by_run(state.of_group(group_id)).items():
                assert told[run_id] == job.state, f"{group_id}: {run_id} is {job.state}, not {told[run_id]}"
            assert group["status"] != "running", f"{group_id} is over, but says that it is running"

    # --- who dies ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        forge = self._forge("daemon")
        lifecycle = Lifecycle()
        with lifecycle.on_signals():
            Daemon(
                forge.store,
                forge.groups,
                forge.settings,
                environment={"PATH": os.environ["PATH"]},
                say=_say_nothing,
                complain=_say_nothing,
                lifecycle=lifecycle,
            ).run()

    def _disturb(self) -> None:
        """A command, killed or not; what it acknowledged is remembered."""
        state = self._forge().store.look()
        waiting = sum(job.state is JobState.QUEUED for job in state.jobs.values())
        groups = sorted(state.group_jobs)
        if waiting > _MOST_WAITING:
            time.sleep(0.05)
        acts: list[Callable[[], list[str]]] = [self._one_run, self._sweep]
        if groups:
            group = self.chance.choice(groups)
            acts += [
                lambda: self._control("pause_group", group),
                lambda: self._control("resume_group", group),
                lambda: self._control("retry_failed", group),
                lambda: self._control("cancel_group", group),
            ]
        weights = [6 if waiting < _MOST_WAITING else 0, 2 if waiting < _MOST_WAITING else 0, 1, 2, 2, 1][: len(acts)]
        if not any(weights):
            return
        act = self.chance.choices(acts, weights)[0]
        prepared = act()
        if not prepared:
            return
        acknowledged, pid = self._fork_acknowledging(prepared)
        if self.chance.random() < 0.6:
            time.sleep(self.chance.uniform(0, _LONGEST_LIFE_S))
            self._kill(pid)
            self.command_kills += 1
        else:
            os.waitpid(pid, 0)
        with os.fdopen(acknowledged, "rb") as told:
            self.accepted |= set(json.loads(told.read() or b"[]"))

    def _one_run(self) -> list[str]:
        self._made += 1
        run = f"run-{self._made}"
        self.yard.make_run(run, "sh", "-c", _RUN, env=self._variables())
        group = self.chance.choice(["", "solo-a", "solo-b"])
        return ["enqueue_run", run, group]

    def _sweep(self) -> list[str]:
        self._made += 1
        plan = self.yard.plan("sh", "-c", _RUN, values=list(range(10)))
        plan["base_request"]["env"] = self._variables()
        path = self.yard.write_plan(plan, f"plan-{self._made}.json")
        return ["enqueue_sweep", str(path)]

    def _control(self, verb: str, group: str) -> list[str]:
        return [verb, group]

    def _variables(self) -> dict[str, str]:
        return {"RANDOM_": str(self.chance.randrange(9)), "CODE": self.chance.choice("00001")}

    def _perform(self, words: list[str]) -> list[str]:
        """In the child: do it, and give the runs that were accepted."""
        match words:
            case ["enqueue_run", run, group]:
                self._forge().enqueue_run(run, group_id=group or None, retries=len(run) % 2)
                return [run]
            case ["enqueue_sweep", plan]:
                forge, sweep = open_sweep(Path(plan), None, environment={})
                forge.enqueue_sweep(sweep)
                return sweep.run_ids
            case [verb, group]:
                getattr(self._forge(), verb)(group)
        return []

    def _forge(self, actor: str = "client") -> RunForge:
        return RunForge.open(self.yard.root, environment={}, actor=actor, kill_grace_s=1.0, lock_timeout_s=30.0)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _fork(self, work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 0
        try:
            work()
        except BaseException as fault:  # noqa: BLE001  whatever it is, it must not run on into the test suite
            os.write(2, f"{type(fault).__name__}: {fault}\n".encode())
            code = 3
        os._exit(code)

    def _fork_acknowledging(self, words: list[str]) -> tuple[int, int]:
        """A child that says through a pipe what it has accepted, once that has returned."""
        readable, writable = os.pipe()

        def work() -> None:
            os.close(readable)
            try:
                accepted = self._perform(words)
            except QueueyardError as fault:
                sys.stderr.write(f"{words[0]}: {fault}\n")
                return
            os.write(writable, json.dumps(accepted).encode())

        pid = self._fork(work)
        os.close(writable)
        return readable, pid

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in {-signal.SIGKILL, 0}, f"a child failed by itself: exit code {code}"


def _say_nothing(_line: str) -> None:
    """Nobody listens."""
