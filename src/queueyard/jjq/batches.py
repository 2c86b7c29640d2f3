"""Running the whole queue in batches: one check for up to N items, and bisection if it fails.

The decisions are in `batching.py`; here they are carried out. Trunk only ever moves to a revision that was checked
itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.jjq import batching
from queueyard.jjq.batching import Batch
from queueyard.jjq.checks import output_of
from queueyard.jjq.errors import JjFailed
from queueyard.jjq.landing import conflict_workspace, fail, land, merge_apart
from queueyard.jjq.pool import Pool
from queueyard.jjq.records import CheckResult, Outcome, State
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import landable, run_workspace, trunk_of, what_changed
from queueyard.jjq.worker import already_there, running, start_check, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.jjq.records import Commit, Item, Merge, Queue
    from queueyard.jjq.settings import Config
    from queueyard.jjq.store import Store
    from queueyard.jjq.worker import Reporter
    from queueyard.kernel.lifecycle import Lifecycle


def run_batches(
    store: Store, reporter: Reporter, lifecycle: Lifecycle, *, size: int, stop_on_failure: bool = False
) -> list[Outcome]:
    """Process the queue in batches until nothing is left, or until the first failure. What became of each item."""
    recover(store)
    config, queue = store.look()
    if not queue.queued:
        return []
    with running(store):
        runner = _Batches(store, config, reporter, lifecycle)
        try:
            while runner.next_batch(size) and not (stop_on_failure and runner.has_failed):
                pass
        finally:
            runner.close()
    return runner.outcomes


class _Batches:
    """The state of one run."""

    def __init__(self, store: Store, config: Config, reporter: Reporter, lifecycle: Lifecycle) -> None:
        self._store = store
        self._config = config
        self._reporter = reporter
        self._lifecycle = lifecycle
        self._pool = Pool(store, 1)
        self._output = ""
        self.outcomes: list[Outcome] = []

    @property
    def has_failed(self) -> bool:
        return any(outcome.state is State.FAILED for outcome in self.outcomes)

    def close(self) -> None:
        self._pool.close()
        self._store.sweep(self._pool.left_behind)

    def next_batch(self, size: int) -> bool:
        """Land or fail some items; False if there is nothing to do."""
        queue = self._store.queue(self._config.trunk_bookmark)
        if not queue.queued or not self._lifecycle.running:
            return False
        trunk = trunk_of(queue, self._config.trunk_bookmark)
        landable(queue.queued[0])
        if queue.queued[0].commit.commit_id == trunk.commit_id:
            self._done(already_there(self._store, self._config, queue.queued[0], trunk))
            return True
        try:
            self._merge_and_check([item for item in queue.queued[:size] if not item.conflicted], trunk)
        except JjFailed:
            if self._store.queue(self._config.trunk_bookmark) == queue:
                raise
            self._reporter.note("an item was changed meanwhile; the batch is planned anew")
        return True

    def _merge_and_check(self, items: Sequence[Item], trunk: Commit) -> None:
        """JjFailed if a revision was rewritten between our look and one of our calls."""
        merges = self._chain(items, trunk)
        if merges[0].conflict:
            self._fail(merges[0], None)
        else:
            self._bisect([merge for merge in merges if not merge.conflict], trunk)

    def _chain(self, items: Sequence[Item], trunk: Commit) -> list[Merge]:
        """Each item merged onto the one before it, up to the first conflict, which comes along as the last."""
        merges: list[Merge] = []
        base = trunk
        for item in items:
            merges.append(merge_apart(self._store, item, base))
            if merges[-1].conflict:
                break
            base = merges[-1].commit
        return merges

    def _bisect(self, merges: Sequence[Merge], trunk: Commit) -> None:
        batch = Batch(ids=tuple(merge.id for merge in merges))
        results: dict[int, CheckResult] = {}
        while (length := batching.probe(batch)) is not None:
            results[length] = self._check(merges[length - 1], covering=merges[batch.good : length])
            if not results[length].passed:
                batch = batching.failed(batch, length)
            elif self._land(merges[batch.good : length], results[length], trunk):
                trunk = merges[length - 1].commit
                batch = batching.passed(batch, length)
            else:
                return
        if batch.bad is not None:
            self._fail(merges[batch.bad - 1], results[batch.bad])

    def _check(self, merge: Merge, *, covering: Sequence[Merge]) -> CheckResult:
        store, command = self._store, self._config.check_command
        if self._config.reuse_checks and store.has_passed(merge.tree, command):
            return CheckResult(passed=True, exit_code=0, duration_ms=0, reused=True)
        if len(covering) > 1:
            self._reporter.note(f"one check for items {', '.join(str(one.id) for one in covering)}")
        workspace = self._pool.take(merge)
        try:
            store.journal.append(store.tell(self._config.trunk_bookmark).started(merge, attempt=1))
            check = start_check(store, self._config, merge, Path(workspace.path))
            self._reporter.started(merge)
            result = wait_for(check, self._reporter, self._lifecycle, store)
        finally:
            self._pool.give_back(workspace)
        if result.passed:
            store.remember_pass(merge.tree, command)
        else:
            self._output = output_of(store.log_path(merge.id), check.output_from)
        return result

    def _land(self, merges: Sequence[Merge], check: CheckResult, trunk: Commit) -> bool:
        checks: list[CheckResult | None] = [*([None] * (len(merges) - 1)), check]
        result = land(self._store, self._config, merges, checks, trunk=trunk)
        if result.refused:
            self._again(merges[-1], result.refused, check)
            return False
        for merge, of in zip(merges, checks, strict=True):
            self._done(
                Outcome(
                    id=merge.id,
                    state=State.LANDED,
                    candidate=merge.candidate,
                    merge_commit_id=merge.commit.commit_id,
                    check=of,
                )
            )
        return True

    def _fail(self, merge: Merge, check: CheckResult | None) -> None:
        queue: Queue = self._store.queue(self._config.trunk_bookmark)
        why = what_changed(merge, queue, trunk=merge.base.commit_id)
        if why:
            self._again(merge, why, check)
            return
        if check is None:
            self._pool.free_name(run_workspace(merge.id))
            workspace = conflict_workspace(self._store, merge)
        else:
            workspace = self._pool.take(merge)
            self._pool.give_away(workspace)
        failure = fail(self._store, self._config, merge, check, workspace=workspace)
        outcome = Outcome(
            id=merge.id,
            state=State.FAILED,
            candidate=merge.candidate,
            merge_commit_id=merge.commit.commit_id,
            check=check,
            failure=failure,
        )
        self.outcomes.append(outcome)
        self._reporter.failed(outcome, self._output)

    def _again(self, merge: Merge, why: str, check: CheckResult | None) -> None:
        """A verdict on something that has changed since counts for nothing; the next batch is planned anew."""
        self._reporter.note(f"{why} while item {merge.id} was checked; what was checked does not land")
        teller = self._store.tell(self._config.trunk_bookmark)
        spent = check.duration_ms if check else 0
        self._store.journal.append(teller.wasted(merge, attempt=1, why=why, duration_ms=spent))

    def _done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._reporter.landed(outcome)
