"""Running the whole queue: several checks at once, in workspaces of a pool, landing strictly in order.

The decisions are in `speculation.py`; here they are carried out. With one worker this is the spec's run, item after
item.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.jjq import speculation
from queueyard.jjq.checks import output_of
from queueyard.jjq.errors import ConflictedBookmark, JjFailed, KeepsChanging, TrunkTrouble
from queueyard.jjq.landing import conflict_workspace, fail, land, merge_apart
from queueyard.jjq.pool import Pool
from queueyard.jjq.records import CheckResult, Outcome, State
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import landable, run_workspace, trunk_of, what_changed
from queueyard.jjq.speculation import Phase, Step
from queueyard.jjq.waiting import OperationWatch
from queueyard.jjq.worker import TICK_S, Interrupted, already_there, running, start_check
from queueyard.kernel.lifecycle import Phase as LifePhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.jjq.checks import Check
    from queueyard.jjq.events import Teller
    from queueyard.jjq.records import Commit, Item, Merge, Queue, Workspace
    from queueyard.jjq.settings import Config
    from queueyard.jjq.speculation import Move, Train
    from queueyard.jjq.store import Store
    from queueyard.jjq.worker import Reporter
    from queueyard.kernel.lifecycle import Lifecycle


#: a car in one of these phases has cost something
_COUNTS = frozenset({Phase.CHECKING, Phase.PASSED, Phase.FAILED})


def run_all(
    store: Store,
    reporter: Reporter,
    lifecycle: Lifecycle,
    *,
    jobs: int = 1,
    stop_on_failure: bool = False,
    watch: bool = False,
) -> list[Outcome]:
    """Process items until none is left, or, with `watch`, until a signal comes. What became of each, in order.

    The first signal lets running checks end and lands what passes; the second one stops them.
    """
    recover(store)
    config, queue = store.look()
    if not queue.queued and not watch:
        return []
    with running(store):
        engine = _Engine(store, config, reporter, lifecycle, jobs=jobs, stop_on_failure=stop_on_failure)
        try:
            engine.run(watch=watch)
        finally:
            engine.close()
    return engine.outcomes


class _Engine:
    """The state of one run."""

    def __init__(
        self,
        store: Store,
        config: Config,
        reporter: Reporter,
        lifecycle: Lifecycle,
        *,
        jobs: int,
        stop_on_failure: bool,
    ) -> None:
        self._store = store
        self._config = config
        self._reporter = reporter
        self._lifecycle = lifecycle
        self._stop_on_failure = stop_on_failure
        self._pool = Pool(store, jobs)
        self._train = speculation.start("", jobs=jobs)
        self._queue = store.queue(config.trunk_bookmark)
        self._merges: dict[str, Merge] = {}
        self._checks: dict[int, tuple[Check, Workspace]] = {}
        self._held: dict[int, Workspace] = {}
        self._results: dict[str, CheckResult] = {}
        self._outputs: dict[str, str] = {}
        self._attempts: dict[int, int] = {}
        self._over = False
        self.outcomes: list[Outcome] = []

    def run(self, *, watch: bool) -> None:
        while True:
            try:
                self._until_nothing_is_left()
            except (TrunkTrouble, ConflictedBookmark) as trouble:
                if not watch:
                    raise
                self._reporter.note(f"{trouble}; waiting until that is put right ({trouble.hint})")
            if not watch or self._over or not self._lifecycle.running:
                return
            self._wait_for_pushes()

    def close(self) -> None:
        """Stop what runs and remove every workspace; items that did not land or fail stay queued."""
        for check, _ in self._checks.values():
            check.stop()
        self._checks.clear()
        self._pool.close()
        self._store.sweep(self._pool.left_behind)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _until_nothing_is_left(self) -> None:
        while not self._over:
            self._see(self._queue)
            move = speculation.next_move(self._train, free_workers=self._free_workers)
            if move is not None:
                self._carry_out(move)
            elif self._checks:
                self._wait_for_a_check()
            else:
                return

    @property
    def _free_workers(self) -> int:
        return self._pool.free if self._lifecycle.running else 0

    def _see(self, queue: Queue) -> None:
        """Bring the train in line with what the bookmarks say."""
        self._queue = queue
        if not queue.queued:
            trunk = queue.trunk.targets[0].commit_id if queue.trunk else self._train.trunk
        else:
            trunk = trunk_of(queue, self._config.trunk_bookmark).commit_id
            landable(queue.queued[0])
        queued = {item.id: item.commit.commit_id for item in _until_conflicted(queue)}
        moved = trunk != self._train.trunk
        train, _ = speculation.reconcile(self._train, trunk=trunk, queued=queued)
        self._plan(train, "trunk was moved" if moved else "an item ahead of it was changed")

    def _carry_out(self, move: Move) -> None:
        steps: dict[Step, Callable[[Move], None]] = {
            Step.BUILD: self._build,
            Step.CHECK: self._check,
            Step.LAND: self._land,
            Step.EJECT: self._eject,
        }
        try:
            steps[move.step](move)
        except JjFailed:
            # A revision was rewritten between our look and our call; if so, the next look shows it.
            before = self._queue
            self._queue = self._store.queue(self._config.trunk_bookmark)
            if self._queue == before:
                raise

    def _wait_for_a_check(self) -> None:
        while True:
            for number, (check, workspace) in list(self._checks.items()):
                result = check.poll()
                if result is not None:
                    self._checked(number, check, workspace, result)
                    return
            if self._lifecycle.phase is LifePhase.STOPPING:
                raise Interrupted
            self._reporter.waiting([check for check, _ in self._checks.values()])
            self._store.clock.sleep(TICK_S)

    def _wait_for_pushes(self) -> None:
        watch = OperationWatch(self._store.home.operations, self._store.clock)
        # What a run leaves behind is swept while there is time.
        self._store.sweep(self._pool.left_behind)
        self._pool.left_behind.clear()
        watch.look()
        while self._lifecycle.running:
            self._reporter.waiting([])
            config, queue = self._store.look()
            if queue != self._queue or config != self._config:
                self._config, self._queue = config, queue
                return
            watch.wait(None, until=lambda: not self._lifecycle.running)

    # --- the steps ---------------------------------------------------------------------------------------------------

    def _build(self, move: Move) -> None:
        item = self._item(move.id)
        base = self._commit(move.base)
        if item.commit.commit_id == base.commit_id == self._train.trunk:
            self.outcomes.append(already_there(self._store, self._config, item, base))
            self._reporter.landed(self.outcomes[-1])
            self._queue = self._store.queue(self._config.trunk_bookmark)
            return
        merge = merge_apart(self._store, item, base)
        self._merges[merge.commit.commit_id] = merge
        self._train = speculation.built(
            self._train, move.id, base=base.commit_id, merge=merge.commit.commit_id, conflict=merge.conflict
        )

    def _check(self, move: Move) -> None:
        merge = self._merge(move.id)
        command = self._config.check_command
        if self._config.reuse_checks and self._store.has_passed(merge.tree, command):
            self._reporter.note(f"item {move.id}: this tree has passed the same check before")
            self._train = speculation.checking(self._train, move.id)
            self._take_in(merge, CheckResult(passed=True, exit_code=0, duration_ms=0, reused=True))
            return
        workspace = self._pool.take(merge)
        attempt = self._attempts[move.id] = self._attempts.get(move.id, 0) + 1
        self._store.journal.append(self._teller.started(merge, attempt=attempt))
        check = start_check(self._store, self._config, merge, Path(workspace.path))
        self._checks[move.id] = check, workspace
        self._train = speculation.checking(self._train, move.id)
        self._reporter.started(merge)

    def _checked(self, number: int, check: Check, workspace: Workspace, result: CheckResult) -> None:
        del self._checks[number]
        merge = check.merge
        if result.passed:
            self._pool.give_back(workspace)
            self._store.remember_pass(merge.tree, self._config.check_command)
        else:
            self._pool.hold(workspace)
            self._held[number] = workspace
            self._outputs[merge.commit.commit_id] = output_of(self._store.log_path(number), check.output_from)
        # What was pushed, changed or deleted meanwhile is seen here, so that the next step is planned on it.
        self._queue = self._store.queue(self._config.trunk_bookmark)
        self._take_in(merge, result)

    def _take_in(self, merge: Merge, result: CheckResult) -> None:
        self._results[merge.commit.commit_id] = result
        train, _ = speculation.checked(self._train, merge.id, merge=merge.commit.commit_id, passed=result.passed)
        self._plan(train, f"item {merge.id} ahead of it failed")

    def _land(self, move: Move) -> None:
        merge = self._merge(move.id)
        check = self._results[merge.commit.commit_id]
        trunk = self._commit(self._train.trunk)
        attempt = self._attempts.get(move.id, 1)
        result = land(self._store, self._config, [merge], [check], trunk=trunk, attempt=attempt)
        before, self._queue = self._queue, result.queue
        if result.refused:
            if self._queue == before:
                raise KeepsChanging(f"item {move.id} cannot land: {result.refused}", hint="Try it again: jjq run --all")
            return  # the next look shows what changed
        self._train = speculation.landed(self._train)
        self._finish(
            Outcome(
                id=merge.id,
                state=State.LANDED,
                candidate=merge.candidate,
                merge_commit_id=merge.commit.commit_id,
                check=check,
            )
        )

    def _eject(self, move: Move) -> None:
        merge = self._merge(move.id)
        check = self._results.get(merge.commit.commit_id)
        queue = self._store.queue(self._config.trunk_bookmark)
        why = what_changed(merge, queue, trunk=merge.base.commit_id)
        self._queue = queue
        if why:
            return  # the next look shows the same
        workspace = self._held.pop(move.id, None) or self._workspace_for_conflict(merge)
        self._pool.give_away(workspace)
        attempt = self._attempts.get(move.id, 1)
        failure = fail(self._store, self._config, merge, check, workspace=workspace, attempt=attempt)
        self._train = speculation.ejected(self._train)
        self._queue = self._store.queue(self._config.trunk_bookmark)
        self._finish(
            Outcome(
                id=merge.id,
                state=State.FAILED,
                candidate=merge.candidate,
                merge_commit_id=merge.commit.commit_id,
                check=check,
                failure=failure,
            )
        )
        self._over = self._stop_on_failure

    def _workspace_for_conflict(self, merge: Merge) -> Workspace:
        self._pool.free_name(run_workspace(merge.id))
        return conflict_workspace(self._store, merge)

    # --- odds and ends -----------------------------------------------------------------------------------------------

    @property
    def _teller(self) -> Teller:
        return self._store.tell(self._config.trunk_bookmark)

    def _finish(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.state is State.LANDED:
            self._reporter.landed(outcome)
        else:
            self._reporter.failed(outcome, self._outputs.get(outcome.merge_commit_id or "", ""))

    def _plan(self, train: Train, why: str) -> None:
        """Go on with this train; whoever was being checked, or had a verdict, and has to start anew is told."""
        before, self._train = self._train, train
        for old in before.cars:
            new = train.car(old.id)
            if old.phase in _COUNTS and old.merge is not None and (new is None or new.merge != old.merge):
                queued = self._queue.item(old.id)
                gone = f"item {old.id} was taken out of the queue" if queued is None else None
                changed = f"item {old.id} was changed" if new and new.candidate != old.candidate else None
                self._throw_away(self._merges[old.merge], gone or changed or why)
        self._release_held()

    def _throw_away(self, merge: Merge, why: str) -> None:
        """What was found out about this merge counts for nothing."""
        spent = self._results[merge.commit.commit_id].duration_ms if merge.commit.commit_id in self._results else 0
        check, workspace = self._checks.pop(merge.id, (None, None))
        if check is not None and workspace is not None:
            spent = check.stop()
            self._pool.give_back(workspace)
        attempt = self._attempts.get(merge.id, 1)
        self._store.journal.append(self._teller.wasted(merge, attempt=attempt, why=why, duration_ms=spent))
        self._reporter.note(f"{why} while item {merge.id} was checked; it is planned anew")

    def _release_held(self) -> None:
        """A workspace is held for an item as long as its failure stands."""
        for number, workspace in list(self._held.items()):
            car = self._train.car(number)
            if car is None or car.phase is not Phase.FAILED:
                del self._held[number]
                self._pool.give_back(workspace)

    def _item(self, number: int) -> Item:
        item = self._queue.item(number)
        if item is None:
            raise ValueError(f"item {number} is planned but not queued")
        return item

    def _merge(self, number: int) -> Merge:
        car = self._train.car(number)
        if car is None or car.merge is None:
            raise ValueError(f"item {number} is not merged")
        return self._merges[car.merge]

    def _commit(self, commit_id: str | None) -> Commit:
        if commit_id in self._merges:
            return self._merges[commit_id].commit
        return trunk_of(self._queue, self._config.trunk_bookmark)


def _until_conflicted(queue: Queue) -> list[Item]:
    """The items before the first one that nobody can say the revision of: what is behind it has to wait."""
    items: list[Item] = []
    for item in queue.queued:
        if item.conflicted:
            break
        items.append(item)
    return items
