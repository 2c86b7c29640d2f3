"""The runner: one item as the spec says it, and what every way of running shares.

Promises: one run at a time; trunk only ever moves to a revision whose check has passed; whatever ends a run, an error
or a signal too, leaves the items that did not land or fail in the queue.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from queueyard.jjq.checks import Check, output_of
from queueyard.jjq.errors import JjFailed, KeepsChanging
from queueyard.jjq.landing import fail, land, merge_in_workspace
from queueyard.jjq.records import LockName, Outcome, Scope, State
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import item_bookmark, landable, trunk_of, what_changed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from queueyard.jjq.records import CheckResult, Commit, Failure, Item, Merge
    from queueyard.jjq.settings import Config
    from queueyard.jjq.store import Store
    from queueyard.kernel.lifecycle import Lifecycle

#: how often a run looks whether a check has ended
TICK_S = 0.02
_MOST_ATTEMPTS = 5


class Reporter(Protocol):
    """Who is told how a run goes."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def started(self, merge: Merge) -> None:
        """A check begins."""

    def waiting(self, checks: Sequence[Check]) -> None:
        """These checks are running; asked many times a second."""

    def landed(self, outcome: Outcome) -> None:
        """An item is on trunk."""

    def failed(self, outcome: Outcome, output: str) -> None:
        """An item has failed; `output` is what its check printed."""


class Silent:
    """Nobody is told: for programs that read the outcomes instead."""

    def note(self, text: str) -> None:
        pass

    def started(self, merge: Merge) -> None:
        pass

    def waiting(self, checks: Sequence[Check]) -> None:
        pass

    def landed(self, outcome: Outcome) -> None:
        pass

    def failed(self, outcome: Outcome, output: str) -> None:
        pass


class Interrupted(BaseException):
    """A signal asked the run to stop; like KeyboardInterrupt, no error of the program."""


@contextmanager
def running(store: Store) -> Iterator[None]:
    """Hold the run lock, with its sign and its mark, while the block runs. LockHeld if another run is under way."""
    with store.holding(LockName.RUN):
        store.begin_run()
        try:
            yield
        finally:
            store.end_run()


def start_check(store: Store, config: Config, merge: Merge, folder: Path) -> Check:
    return Check(
        merge,
        config.check_command,
        folder=folder,
        log=store.log_path(merge.id),
        clock=store.clock,
        timeout_s=config.check_timeout_s,
        retries=config.flaky_retries,
        keep=config.keep_environment,
    )


def run_one(store: Store, reporter: Reporter, lifecycle: Lifecycle) -> Outcome | None:
    """Process the next item. spec: run. None if the queue is empty.

    If the candidate was changed or trunk was moved during the check, the item stays queued and is checked again;
    KeepsChanging if that happens every time.
    """
    recover(store)
    config, queue = store.look()
    if not queue.queued:
        return None
    with running(store):
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            queue = store.queue(config.trunk_bookmark)
            if not queue.queued:
                return None
            one = _Attempt(store, config, reporter, lifecycle, attempt)
            outcome = one.make(landable(queue.queued[0]), trunk_of(queue, config.trunk_bookmark))
            if outcome is not None:
                return outcome
        raise KeepsChanging(
            f"the item or trunk changed during each of {_MOST_ATTEMPTS} checks; it stays queued",
            hint="Let it rest for the time of one check, then: jjq run",
        )


class _Attempt:
    """One try to bring one item to trunk."""

    def __init__(self, store: Store, config: Config, reporter: Reporter, lifecycle: Lifecycle, attempt: int) -> None:
        self._store = store
        self._config = config
        self._reporter = reporter
        self._lifecycle = lifecycle
        self._attempt = attempt
        self._output = ""
        # On the ordinary way to trunk nothing is left; every other way leaves a revision that nobody needs.
        self._leaves_something = True

    def make(self, item: Item, trunk: Commit) -> Outcome | None:
        """What became of it; None if something changed meanwhile, and it is to be tried again."""
        if item.commit.commit_id == trunk.commit_id:
            return self._already_there(item, trunk)
        try:
            merge, workspace = merge_in_workspace(self._store, item, trunk)
        except JjFailed:
            if self._same_as_before(item, trunk):
                raise
            return None
        landed = failure = None
        try:
            check = None if merge.conflict else self._check(merge, Path(workspace.path))
            if check is not None and check.passed:
                landed = self._land(merge, check, trunk)
            elif self._still(merge, trunk):
                failure = fail(self._store, self._config, merge, check, workspace=workspace, attempt=self._attempt)
        finally:
            if failure is None:
                self._store.workspaces.drop(workspace)
                if self._leaves_something:
                    self._store.sweep()
        return landed if failure is None else self._failed(failure, merge, check)

    def _check(self, merge: Merge, folder: Path) -> CheckResult:
        store, teller = self._store, self._store.tell(self._config.trunk_bookmark)
        store.journal.append(teller.started(merge, attempt=self._attempt))
        self._reporter.started(merge)
        check = start_check(store, self._config, merge, folder)
        result = wait_for(check, self._reporter, self._lifecycle, store)
        if result.passed:
            store.remember_pass(merge.tree, self._config.check_command)
        else:
            self._output = output_of(store.log_path(merge.id), check.output_from)
        return result

    def _land(self, merge: Merge, check: CheckResult, trunk: Commit) -> Outcome | None:
        result = land(self._store, self._config, [merge], [check], trunk=trunk, attempt=self._attempt)
        if result.refused:
            self._again(merge, result.refused, check)
            return None
        self._leaves_something = result.rewritten
        outcome = Outcome(
            id=merge.id,
            state=State.LANDED,
            candidate=merge.candidate,
            merge_commit_id=merge.commit.commit_id,
            check=check,
        )
        self._reporter.landed(outcome)
        return outcome

    def _still(self, merge: Merge, trunk: Commit) -> bool:
        """Whether the failure is one of what is queued now."""
        why = what_changed(merge, self._store.queue(self._config.trunk_bookmark), trunk=trunk.commit_id)
        if why:
            self._again(merge, why, None)
        return why is None

    def _again(self, merge: Merge, why: str, check: CheckResult | None) -> None:
        self._reporter.note(f"{why} while item {merge.id} was checked; what was checked does not land")
        teller = self._store.tell(self._config.trunk_bookmark)
        spent = check.duration_ms if check else 0
        self._store.journal.append(teller.wasted(merge, attempt=self._attempt, why=why, duration_ms=spent))

    def _failed(self, failure: Failure, merge: Merge, check: CheckResult | None) -> Outcome:
        outcome = Outcome(
            id=merge.id,
            state=State.FAILED,
            candidate=merge.candidate,
            merge_commit_id=merge.commit.commit_id,
            check=check,
            failure=failure,
        )
        self._reporter.failed(outcome, self._output)
        return outcome

    def _already_there(self, item: Item, trunk: Commit) -> Outcome | None:
        """The candidate is trunk itself: there is nothing to merge and nothing to check."""
        outcome = already_there(self._store, self._config, item, trunk)
        self._reporter.note(f"item {item.id} is trunk already")
        self._reporter.landed(outcome)
        return outcome

    def _same_as_before(self, item: Item, trunk: Commit) -> bool:
        queue = self._store.queue(self._config.trunk_bookmark)
        now = queue.item(item.id)
        at = [commit.commit_id for commit in queue.trunk.targets] if queue.trunk else []
        return now == item and at == [trunk.commit_id]


def already_there(store: Store, config: Config, item: Item, trunk: Commit) -> Outcome:
    """Take an item out of the queue whose candidate is trunk itself."""
    store.jj.delete_bookmarks(item_bookmark(Scope.QUEUE, item.id))
    store.journal.append(store.tell(config.trunk_bookmark).landed(item.id, trunk, None))
    return Outcome(id=item.id, state=State.LANDED, candidate=item.commit, merge_commit_id=trunk.commit_id)


def wait_for(check: Check, reporter: Reporter, lifecycle: Lifecycle, store: Store) -> CheckResult:
    """How the check ended. Interrupted, and the check is stopped, if a signal says so."""
    while (result := check.poll()) is None:
        if not lifecycle.running:
            check.stop()
            raise Interrupted
        reporter.waiting([check])
        store.clock.sleep(TICK_S)
    return result
