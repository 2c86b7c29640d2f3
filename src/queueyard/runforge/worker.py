"""The daemon: starts what is due, sees what ends, and keeps queue.json, group.json and daemon.json up to date.

One thread, one selector. It waits for the end of a process, for a message through the pipe, for a signal, or for the
next thing that is due; it acts on each at once. Twice a second it looks at files that tools without a pipe may have
written. What it decides goes to the journal before it happens; the files for others follow, at most five times a
second, and never take more than a small share of its time.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
import gc
import os
import stat
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.kernel.errors import LockTimeout, QueueyardError, StorageFailed, UnsafePath, explaining
from queueyard.kernel.lifecycle import Lifecycle, Phase
from queueyard.kernel.locks import FileLock
from queueyard.runforge.agenda import Agenda
from queueyard.runforge.crew import Crew
from queueyard.runforge.errors import DaemonRunning
from queueyard.runforge.hooks import Hooks
from queueyard.runforge.poller import Poller
from queueyard.runforge.recorder import Recorder
from queueyard.runforge.records import DaemonFile, DaemonState, JobState, Limits
from queueyard.runforge.rules import ended, local_iso
from queueyard.runforge.scribe import Scribe
from queueyard.runforge.store import WAKE_FOR_SNAPSHOT
from queueyard.runforge.tokens import daemon_started, daemon_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.records import Entry, Raw
    from queueyard.runforge.settings import RunforgeSettings
    from queueyard.runforge.state import Change
    from queueyard.runforge.store import Store

#: at most every 5 s, with the half second between two looks; others call us dead after 30 s without
HEARTBEAT_EVERY_S = 4.5
#: how soon a tool that only writes files is noticed
LOOK_EVERY_S = 0.5
#: daemon.json also tells how many jobs run, but need not do so more often
_BEAT_AT_MOST_EVERY_S = 1.0
_PIPE_BYTES = 65_536
_LOADED_WITHIN_S = 5.0
_LOADING_LOOK_EVERY_S = 0.01


class Daemon:
    """One life of the daemon: `run` returns when it was asked to stop and nothing runs any more."""

    def __init__(
        self,
        store: Store,
        groups: GroupFiles,
        settings: RunforgeSettings,
        *,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        complain: Callable[[str], None],
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._groups = groups
        self._settings = settings
        self._clock = store.clock
        self._say = say
        self._complain = complain
        self._lifecycle = lifecycle
        self._workspace = store.workspace
        self._poller = Poller()
        self._recorder = Recorder(store, self._clock, complain)
        self._crew = Crew(
            store, self._recorder, settings, self._poller, environment=environment, say=self._note, complain=complain
        )
        self._hooks = Hooks(self._poller, self._clock, complain)
        self._scribe = Scribe(store, groups, self._clock, complain=complain, on_group_end=self._on_end_of_group)
        self._agenda = Agenda(store.state)
        self._news: list[Change] = []
        self._lines: list[str] = []
        self._fails_fast: dict[str, bool] = {}
        self._started_at = ""
        self._beat_at_s = float("-inf")
        self._beat_told: tuple[DaemonState, int, int] | None = None
        self._look_at_s = float("-inf")
        self._grace_ends_s: float | None = None
        self._pipe = -1

    def run(self) -> None:
        """Serve the workspace until a signal. DaemonRunning if another daemon does, CorruptFile if the state is."""
        with ExitStack() as stack:
            self._be_the_only_one(stack)
            self._take_over(stack)
            self._say(daemon_started(os.getpid(), self._settings.max_parallel))
            self._pick_up()
            self._poller.register(self._lifecycle.fileno(), self._on_signal)
            while not self._is_over:
                self._work()
                self._poller.wait(self._idle_s())
            self._leave()

    # --- start and end -----------------------------------------------------------------------------------------------

    def _be_the_only_one(self, stack: ExitStack) -> None:
        """Take the lock and say so at once: RunForge Desktop waits a second, and reading a large queue takes longer."""
        self._workspace.make_queue_folder()
        lock = FileLock(self._workspace.daemon_lock, timeout_s=0.0, clock=self._clock)
        self._acquire(lock)
        stack.callback(lock.release)
        # spec: Single Instance Lock; the number alone, as other tools expect it
        with suppress(OSError):
            self._workspace.daemon_lock.write_text(str(os.getpid()), encoding="ascii")
        self._started_at = local_iso(self._clock.now())
        self._beat()

    def _take_over(self, stack: ExitStack) -> None:
        """See the queue as it is, and be reachable: in one step, under the lock."""
        try:
            with self._store.locked():
                self._pipe = self._open_pipe()
                stack.callback(os.close, self._pipe)
                self._news = self._store.follow()
                self._news.clear()
                limits = Limits(max_parallel=self._settings.max_parallel, gpu_slots=self._settings.gpu_slots)
                self._store.commit(limits, durable=False)
                self._store.tell_later()
            # Runs start in the workspace: inheriting it is cheaper than changing to it each time.
            with explaining("go to", self._workspace.root):
                os.chdir(self._workspace.root)
        except QueueyardError:
            self._beat(DaemonState.STOPPED)
            raise
        self._agenda = Agenda(self._store.state, policy=self._settings.policy)
        self._poller.register(self._pipe, self._on_message)
        stack.callback(self._poller.close)

    def _acquire(self, lock: FileLock) -> None:
        """The lock of the only daemon. DaemonRunning if a living one holds it.

        A daemon that is killed while it starts a run leaves its lock to that process, until its program is loaded.
        """
        deadline_s = self._clock.monotonic() + _LOADED_WITHIN_S
        while True:
            try:
                lock.acquire()
            except LockTimeout as fault:
                if not self._is_holder_dead() or self._clock.monotonic() >= deadline_s:
                    raise self._someone_else() from fault
            else:
                return
            self._clock.sleep(_LOADING_LOOK_EVERY_S)

    def _is_holder_dead(self) -> bool:
        with suppress(OSError, ValueError):
            return proc.identity_of(int(self._workspace.daemon_lock.read_text(encoding="ascii"))) is None
        return False

    def _someone_else(self) -> DaemonRunning:
        known = self._store.daemon()
        with suppress(OSError, ValueError):
            pid = int(self._workspace.daemon_lock.read_text(encoding="ascii"))
            since = f" since {known.started_at}" if known and known.pid == pid else ""
            return DaemonRunning(
                f"a daemon with pid {pid} serves {self._workspace.root} already{since}", hint=f"Stop it: kill {pid}"
            )
        return DaemonRunning(f"a daemon serves {self._workspace.root} already", hint="See: runforge-cli queue-status")

    def _open_pipe(self) -> int:
        path = self._workspace.wake
        with explaining("make", path):
            if path.exists() and not stat.S_ISFIFO(path.stat().st_mode):
                path.unlink()
            with suppress(FileExistsError):
                os.mkfifo(path)
            # Open for both, or it would be at its end whenever no command has it open.
            return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _pick_up(self) -> None:
        """Go on where the last daemon ended: adopt what still runs, settle what does not."""
        state = self._store.state
        self._scribe.note_groups(state.unsaved)
        self._recorder.add(*self._agenda.fill(self._clock.now))
        for group in {job.group_id for job in state.in_state(JobState.QUEUED) if job.group_id is not None}:
            self._see_pause(group)
        for job in list(state.in_state(JobState.RUNNING)):
            self._crew.pick_up(job)
        # Before anything is started, so that what comes back has its old place.
        self._recorder.write()
        # A hundred thousand jobs that stay need not be looked at by every collection.
        gc.freeze()

    def _leave(self) -> None:
        """Tell everything, and go: under the lock, so that who commits next finds nobody and publishes by itself."""
        try:
            with self._store.alone(timeout_s=self._settings.lock_timeout_s):
                self._tell_all()
                if self._store.is_long:
                    self._store.compact()
        except LockTimeout:
            self._tell_all()
        self._beat(DaemonState.STOPPED)
        self._workspace.daemon_lock.unlink(missing_ok=True)
        self._say(daemon_stopped(os.getpid()))

    def _tell_all(self) -> None:
        self._workspace.wake.unlink(missing_ok=True)
        self._store.catch_up()
        self._follow()
        self._scribe.write_all()
        self._speak()

    @property
    def _is_over(self) -> bool:
        return not self._lifecycle.running and not len(self._crew) and not self._recorder.has_pending

    # --- one round ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        now = self._clock.monotonic()
        self._crew.enforce()
        if now >= self._look_at_s:
            self._look_at_s = now + LOOK_EVERY_S
            self._look_around()
        if self._grace_ends_s is not None and now >= self._grace_ends_s:
            self._hand_back_all()
        if self._agenda.next_wake_s is not None:
            self._agenda.wake(now_s=self._clock.now().timestamp())
        self._start_what_fits()
        self._recorder.write_round()
        self._follow()
        # What follows may have made room or work for more.
        self._start_what_fits()
        self._speak()
        self._scribe.write_due()

    def _idle_s(self) -> float:
        """How long there is nothing to do, if nothing happens."""
        now = self._clock.monotonic()
        left_s = self._look_at_s - now
        for due_s in (
            self._crew.next_due_s(),
            self._scribe.next_due_s(),
            self._recorder.next_due_s(),
            self._grace_ends_s,
        ):
            if due_s is not None:
                left_s = min(left_s, due_s - now)
        wake_s = self._agenda.next_wake_s
        if wake_s is not None:
            left_s = min(left_s, wake_s - self._clock.now().timestamp())
        return max(0.0, left_s)

    def _note(self, line: str) -> None:
        """Say it when the round is over: one write for all lines of a round."""
        self._lines.append(line)

    def _speak(self) -> None:
        if self._lines:
            self._say("\n".join(self._lines))
            self._lines.clear()

    def _follow(self) -> None:
        """Let everybody know what changed, until nothing follows from it any more."""
        while self._news:
            changes = self._news[:]
            self._news.clear()
            self._scribe.note(changes)
            ends: list[Entry] = list(self._agenda.take(changes, self._clock.now))
            ends += self._ends_by_fail_fast(changes)
            if ends:
                self._recorder.write(*ends)

    def _start_what_fits(self) -> None:
        self._follow()
        if not self._lifecycle.running:
            return
        while self._crew.has_room and not self._recorder.is_refused:
            job = self._agenda.next(gpu_free=self._crew.has_gpu)
            if job is None:
                return
            if job.group_id is None or not self._see_pause(job.group_id):
                self._crew.start(job)
            self._follow()

    def _look_around(self) -> None:
        """What nobody tells us: files that other tools wrote, processes that we cannot watch, the time."""
        self._hooks.enforce()
        self._beat_if_due()
        self._store.catch_up()
        self._scribe.look_at_foreign()
        self._crew.stop_what_is_wished()
        self._crew.look_for_unnamed()
        for group in self._agenda.paused():
            self._see_pause(group)

    def _see_pause(self, group: str) -> bool:
        """Whether the group is paused now (spec: Group Pause Field); the agenda knows it too."""
        try:
            is_paused = self._groups.is_paused(group)
        except UnsafePath:
            is_paused = False
        if is_paused:
            self._agenda.pause(group)
        else:
            self._agenda.resume(group)
        return is_paused

    def _ends_by_fail_fast(self, changes: Sequence[Change]) -> Iterator[Entry]:
        """A plan may want that the first failure ends what has not begun."""
        for before, job in changes:
            if job is None or before is None or job.state is not JobState.FAILED or job.group_id is None:
                continue
            if self._fails_fast_in(job.group_id):
                for other in self._store.state.of_group(job.group_id):
                    if other.state is JobState.QUEUED:
                        why = f"fail_fast: {job.run_id} failed"
                        yield ended(other, JobState.CANCELED, at=local_iso(self._clock.now()), error=why)

    def _fails_fast_in(self, group: str) -> bool:
        if group not in self._fails_fast:
            try:
                plan = self._groups.plan(group)
            except QueueyardError:
                plan = None
            self._fails_fast[group] = plan is not None and plan.fail_fast
        return self._fails_fast[group]

    # --- what others want --------------------------------------------------------------------------------------------

    def _on_message(self) -> None:
        with suppress(BlockingIOError):
            if WAKE_FOR_SNAPSHOT in os.read(self._pipe, _PIPE_BYTES):
                self._scribe.ask()
        self._store.catch_up()
        self._crew.stop_what_is_wished()
        for group in self._agenda.paused():
            self._see_pause(group)

    def _on_signal(self) -> None:
        phase = self._lifecycle.acknowledge()
        if phase is Phase.DRAINING:
            self._grace_ends_s = self._clock.monotonic() + self._settings.shutdown_grace_s
            self._beat()
        elif phase is Phase.STOPPING:
            self._hand_back_all()

    def _hand_back_all(self) -> None:
        self._grace_ends_s = None
        self._crew.hand_back_all()

    def _on_end_of_group(self, group: Raw) -> None:
        if self._settings.on_group_end:
            self._hooks.group_ended(
                self._settings.on_group_end, group, env=self._crew.inherited, cwd=self._workspace.root
            )

    # --- the heart ---------------------------------------------------------------------------------------------------

    def _beat(self, state: DaemonState | None = None) -> None:
        """Write daemon.json."""
        told = self._to_tell(state)
        self._beat_at_s, self._beat_told = self._clock.monotonic(), told
        daemon = DaemonFile(
            pid=os.getpid(),
            started_at=self._started_at,
            last_heartbeat=local_iso(self._clock.now()),
            max_parallel=self._settings.max_parallel,
            gpu_slots=self._settings.gpu_slots,
            active_jobs=told[1],
            active_gpu_jobs=told[2],
            state=told[0],
        )
        try:
            self._store.write_daemon(daemon)
        except StorageFailed as fault:
            self._recorder.refuse(fault)

    def _to_tell(self, state: DaemonState | None = None) -> tuple[DaemonState, int, int]:
        if state is None:
            state = DaemonState.RUNNING if self._lifecycle.running else DaemonState.STOPPING
        return state, len(self._crew), self._crew.gpu_jobs

    def _beat_if_due(self) -> None:
        """At least every five seconds, and soon after the number of running jobs changed."""
        since_s = self._clock.monotonic() - self._beat_at_s
        if since_s >= HEARTBEAT_EVERY_S or (since_s >= _BEAT_AT_MOST_EVERY_S and self._to_tell() != self._beat_told):
            self._beat()
