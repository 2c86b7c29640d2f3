"""Keeps the files for others up to date while the daemon works: queue.json, group.json, and the journal short.

A file that cannot be written is complained about once and tried again; the journal has the truth, so nothing is lost
by a snapshot that comes late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.kernel.atomic import replace_file
from queueyard.kernel.errors import CorruptFile, LockTimeout, QueueyardError, StorageFailed, UnsafePath
from queueyard.runforge.pace import Pace
from queueyard.runforge.records import GroupSaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from queueyard.kernel.clock import Clock
    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.records import Job, Raw
    from queueyard.runforge.state import Change
    from queueyard.runforge.store import Store

SNAPSHOT_EVERY_S = 0.2
_SNAPSHOT_SHARE = 0.03
_GROUPS_SHARE = 0.03
_EVENTS_EVERY_S = 0.1
_COMPACT_EVERY_S = 10.0
_GROUP_EVERY_S = 0.2


class Scribe:
    """What was changed and is not told yet."""

    def __init__(
        self,
        store: Store,
        groups: GroupFiles,
        clock: Clock,
        *,
        complain: Callable[[str], None],
        on_group_end: Callable[[Raw], None],
    ) -> None:
        self._store = store
        self._groups = groups
        self._clock = clock
        self._complain = complain
        self._on_group_end = on_group_end
        self._snapshots = Pace(clock, every_s=SNAPSHOT_EVERY_S, share=_SNAPSHOT_SHARE)
        self._group_saves = Pace(clock, every_s=0.0, share=_GROUPS_SHARE)
        self._events = Pace(clock, every_s=_EVENTS_EVERY_S, share=_SNAPSHOT_SHARE)
        self._compactions = Pace(clock, every_s=_COMPACT_EVERY_S, share=_SNAPSHOT_SHARE)
        self._is_asked = False
        #: group -> run -> its job as it changed last; None for all of them
        self._groups_behind: dict[str, dict[str, str] | None] = {}
        self._group_due_s: dict[str, float] = {}
        self._complaints: set[str] = set()

    def note(self, changes: Iterable[Change]) -> None:
        """Remember what changed."""
        for _, after in changes:
            if after is None or after.group_id is None:
                continue
            runs = self._groups_behind.setdefault(after.group_id, {})
            if runs is not None:
                runs[after.run_id] = after.job_id

    def note_groups(self, group_ids: Iterable[str]) -> None:
        """Groups of which nobody knows what their file does not tell."""
        for group_id in group_ids:
            self._groups_behind[group_id] = None

    def ask(self) -> None:
        """Somebody waits for a snapshot."""
        self._is_asked = True

    def write_due(self) -> None:
        """Write what may be written now."""
        now = self._clock.monotonic()
        if self._store.state.is_behind and now >= self._snapshot_due_s:
            self._publish()
        if self._groups_behind and now >= self._next_group_due_s:
            with self._group_saves.doing():
                self._save_group(next(iter(self._groups_behind)))
        if self._store.is_long and now >= self._compactions.due_s:
            self._compact()
        if self._store.has_untold and now >= self._events.due_s:
            with self._events.doing():
                self._store.tell_now()

    def write_all(self) -> None:
        """Write everything, at the end."""
        for group_id in list(self._groups_behind):
            self._save_group(group_id)
        self._publish()
        self._store.tell_now()

    def next_due_s(self) -> float | None:
        """When `write_due` has something to do, monotonic."""
        times = []
        if self._store.state.is_behind:
            times.append(self._snapshot_due_s)
        if self._groups_behind:
            times.append(self._next_group_due_s)
        if self._store.has_untold:
            times.append(self._events.due_s)
        return min(times, default=None)

    def look_at_foreign(self) -> None:
        """Merge what another tool wrote into queue.json; if that makes no sense, keep it aside and write ours."""
        try:
            self._store.merge_foreign()
        except CorruptFile as fault:
            self._set_aside(fault)
        except StorageFailed as fault:
            self._tell(f"queue.json: {fault}")

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _snapshot_due_s(self) -> float:
        return self._snapshots.due_if_asked_s if self._is_asked else self._snapshots.due_s

    @property
    def _next_group_due_s(self) -> float:
        """The group that is behind for longest is saved next; whoever was saved just now waits a little."""
        first = next(iter(self._groups_behind))
        return max(self._group_due_s.get(first, 0.0), self._group_saves.due_s)

    def _publish(self) -> None:
        with self._snapshots.doing():
            self._is_asked = False
            try:
                self._store.publish()
            except CorruptFile as fault:
                self._set_aside(fault)
            except QueueyardError as fault:
                self._tell(f"queue.json: {fault}")
            else:
                self._well("queue.json")

    def _set_aside(self, fault: CorruptFile) -> None:
        path = self._store.workspace.queue_file
        aside = path.with_name("queue.json.damaged")
        self._complain(f"{fault}; it is kept as {aside.name} and written anew from the journal")
        try:
            replace_file(aside, path.read_bytes())
            self._store.rebuild()
        except (OSError, QueueyardError) as second:
            self._tell(f"queue.json: {second}")

    def _save_group(self, group_id: str) -> None:
        changed = self._groups_behind.pop(group_id)
        state = self._store.state
        upto = 0

        def jobs() -> Iterable[Job]:
            nonlocal upto
            self._store.catch_up()
            upto = state.unsaved.get(group_id, 0)
            if changed is None:
                return state.of_group(group_id)
            for _, after in self._store.follow():
                if after is not None and after.group_id == group_id:
                    changed[after.run_id] = after.job_id
            return [state.jobs[name] for name in changed.values() if name in state.jobs]

        try:
            saved = self._groups.save_jobs(group_id, jobs, all_jobs=lambda: state.of_group(group_id))
            self._store.commit(GroupSaved(group_id=group_id, upto=upto), durable=False)
        except (CorruptFile, UnsafePath) as fault:
            # Not ours to overwrite; the queue goes on, and doctor can rebuild it.
            self._tell(f"{group_id}: {fault}")
            return
        except (StorageFailed, LockTimeout) as fault:
            self._tell(f"{group_id}: {fault}")
            self._groups_behind[group_id] = None
            self._group_due_s[group_id] = self._clock.monotonic() + 2.0
            return
        self._group_due_s[group_id] = self._clock.monotonic() + _GROUP_EVERY_S
        if saved.just_ended:
            self._group_due_s.pop(group_id, None)
            self._groups.forget(group_id)
            self._on_group_end(saved.raw)

    def _compact(self) -> None:
        with self._compactions.doing():
            try:
                with self._store.alone():
                    self._store.publish()
                    self._store.compact()
            except QueueyardError as fault:
                # A command holds the lock, or the disk refuses: the journal is merely longer than it should be.
                self._tell(f"journal: {fault}")

    def _tell(self, text: str) -> None:
        if text not in self._complaints:
            self._complaints.add(text)
            self._complain(text)

    def _well(self, what: str) -> None:
        self._complaints = {text for text in self._complaints if not text.startswith(what)}
