"""`jjq run` and `check`: on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from queueyard.console import examples
from queueyard.jjq.calls import Call, common

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.jjq.records import Outcome
    from queueyard.jjq.worker import Reporter
    from queueyard.kernel.lifecycle import Lifecycle

    _Runner = Callable[[Reporter, Lifecycle], list[Outcome]]


@click.command(
    epilog=examples(
        "jjq run", "jjq run --all", "jjq run --all --jobs 4", "jjq run --watch --jobs 4", "jjq run --batch 8"
    )
)
@click.option("-a", "--all", "all_items", is_flag=True, help="Process items until none is left.")
@click.option("--stop-on-failure", is_flag=True, help="With --all: stop after the first item that fails.")
@click.option("-w", "--watch", is_flag=True, help="Process all items, then wait for pushes; Ctrl-C ends.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="With --all or --watch: check so many items at once, each on top of those ahead of it.",
)
@click.option(
    "-b",
    "--batch",
    type=click.IntRange(1, 64),
    metavar="N",
    help="One check for up to N items; on failure, bisect to the culprit. Processes all items.",
)
@common
def run(call: Call, all_items: bool, stop_on_failure: bool, watch: bool, jobs: int, batch: int | None) -> None:
    """Merge the next item with trunk, check the result, and move trunk to it if the check passes.

    Exit code 0 if everything landed or the queue is empty, 1 if an item failed or another run is under way. A failed
    item's workspace is kept; its path is shown.
    """
    _check_flags(all_items=all_items, stop_on_failure=stop_on_failure, watch=watch, jobs=jobs, batch=batch)
    from queueyard.jjq.batches import run_batches  # noqa: PLC0415
    from queueyard.jjq.parallel import run_all  # noqa: PLC0415
    from queueyard.jjq.worker import run_one  # noqa: PLC0415

    store = call.jjq.store
    store.check_jj()

    def one(reporter: Reporter, lifecycle: Lifecycle) -> list[Outcome]:
        outcome = run_one(store, reporter, lifecycle)
        return [] if outcome is None else [outcome]

    def everything(reporter: Reporter, lifecycle: Lifecycle) -> list[Outcome]:
        return run_all(store, reporter, lifecycle, jobs=jobs, stop_on_failure=stop_on_failure, watch=watch)

    def in_batches(reporter: Reporter, lifecycle: Lifecycle) -> list[Outcome]:
        return run_batches(store, reporter, lifecycle, size=batch or 1, stop_on_failure=stop_on_failure)

    _report(call, _run(call, in_batches if batch else everything if all_items or watch else one))


def _check_flags(*, all_items: bool, stop_on_failure: bool, watch: bool, jobs: int, batch: int | None) -> None:
    from queueyard.kernel.errors import UsageFault  # noqa: PLC0415

    if batch and (watch or jobs > 1):
        raise UsageFault("--batch goes with neither --watch nor --jobs", hint="One check at a time: jjq run --batch 8")
    if not (all_items or watch or batch) and (stop_on_failure or jobs > 1):
        raise UsageFault("--jobs and --stop-on-failure are for many items", hint="Add --all or --watch.")


def _run(call: Call, runner: _Runner) -> list[Outcome]:
    from queueyard.jjq.progress import Progress, listening_keys  # noqa: PLC0415
    from queueyard.jjq.worker import Interrupted  # noqa: PLC0415
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415

    store = call.jjq.store
    progress = Progress(call, trunk=store.known_trunk(), heartbeat_s=store.settings.heartbeat_s)
    with Lifecycle().on_signals() as lifecycle, listening_keys():
        try:
            return runner(progress, lifecycle)
        except Interrupted:
            call.note("stopped; what had not landed stays queued")
            raise click.exceptions.Exit(130) from None


def _report(call: Call, outcomes: list[Outcome]) -> None:
    from queueyard.jjq.advice import failure_summary  # noqa: PLC0415
    from queueyard.jjq.errors import ItemFailed  # noqa: PLC0415
    from queueyard.jjq.records import State, to_raw  # noqa: PLC0415

    failed = [outcome for outcome in outcomes if outcome.state is State.FAILED]
    if call.as_json:
        call.out.data([to_raw(outcome) for outcome in outcomes])
    elif not outcomes:
        call.say("queue is empty")
    elif len(outcomes) > 1 and not failed:
        call.say(f"processed {len(outcomes)} items: all landed")
    if failed:
        hint = f"Look at it: jjq status {failed[0].id}"
        raise ItemFailed(failure_summary(outcomes), outcomes=failed, hint=hint)


@click.command(epilog=examples("jjq check", "jjq check --rev my-feature --merged"))
@click.option("-r", "--rev", "revset", default="@", show_default=True, metavar="REVSET", help="The revision to check.")
@click.option("--merged", is_flag=True, help="Check it merged with trunk, as a run would.")
@click.option("-v", "--verbose", is_flag=True, help="Show the output also if the check passes.")
@common
def check(call: Call, revset: str, merged: bool, verbose: bool) -> None:
    """Run the check command on a revision in a temporary workspace. Nothing is queued, nothing is kept.

    Exit code 0 if it passes, 1 if not.
    """
    from queueyard.jjq.progress import Progress, listening_keys  # noqa: PLC0415
    from queueyard.jjq.worker import Interrupted, wait_for  # noqa: PLC0415
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415

    store = call.jjq.store
    progress = Progress(call, trunk="trunk", heartbeat_s=store.settings.heartbeat_s)
    with Lifecycle().on_signals() as lifecycle, listening_keys():
        try:
            merge, result, output = call.jjq.check(
                revset, merged=merged, wait=lambda trial: wait_for(trial, progress, lifecycle, store)
            )
        except Interrupted:
            raise click.exceptions.Exit(130) from None
    progress.done()
    if (verbose or not result.passed) and output:
        call.out.note(output)
    verdict = "passes" if result.passed else f"fails with exit code {result.exit_code}"
    call.show(result, f"revision {merge.candidate.short} {verdict} ({result.duration_ms / 1000:.1f} s)")
    if not result.passed:
        raise click.exceptions.Exit(1)
