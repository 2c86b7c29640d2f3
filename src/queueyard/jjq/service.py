"""`Jjq`: every verb of the command line as a method, for programs.

    from queueyard.jjq import Jjq

    queue = Jjq.open()
    item = queue.push("@-")
    queue.wait(item.id)

All methods are synchronous. They return records and raise the errors of `queueyard.jjq.errors`. Running the queue is in
`worker.py`, `parallel.py` and `batches.py`; `examples/jjq_four_changes.py` shows how a program does it.
"""

from __future__ import annotations

import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Self

from queueyard.jjq import housekeeping, looking, queueing
from queueyard.jjq.home import find_home
from queueyard.jjq.hooks import TellingJournal, ask_before_push
from queueyard.jjq.jj import Jj
from queueyard.jjq.rules import parse_id
from queueyard.jjq.settings import load_settings
from queueyard.jjq.stats import Stats, stats_of
from queueyard.jjq.store import Store
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, parse_since

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from queueyard.jjq.checks import Check
    from queueyard.jjq.looking import ItemView, Status
    from queueyard.jjq.records import CheckResult, Commit, Item, Merge, Outcome, Scope, Workspace
    from queueyard.kernel.atomic import BadLine
    from queueyard.kernel.events import Event


class Jjq:
    """The merge queue of one repository."""

    def __init__(self, store: Store, *, ask: Callable[[Commit], None] | None = None) -> None:
        """`ask` may refuse a revision, by raising, before it is queued."""
        self.store = store
        self._ask = ask

    @classmethod
    def open(
        cls,
        start: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        note: Callable[[str], None] | None = None,
        wait: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """The queue of the repository around `start` (default: the current folder). NotARepository if there is none.

        `note` gets what a user should know beside the answers (default: stderr). Without `wait`, a lock that somebody
        holds refuses at once.
        """
        variables = os.environ if environment is None else environment
        home = find_home((start or Path.cwd()).absolute())
        jj = Jj(home.workspace, environment=variables, clock=clock)
        settings = load_settings(variables)
        store = Store(home, jj, settings=settings, note=note or _note_on_stderr, clock=clock, wait=wait)
        if command := settings.after_item:
            store.journal = TellingJournal(
                home.journal, command, cwd=home.cwd, environment=variables, note=note or _note_on_stderr
            )
        return cls(store, ask=_asking(settings.before_push, home.cwd, variables))

    # --- items -------------------------------------------------------------------------------------------------------

    def push(self, revset: str) -> Item:
        """Queue one revision."""
        return queueing.push(self.store, revset, ask=self._ask)

    def retry(self, identifier: int | str, revset: str | None = None) -> Item:
        """Queue a failed item again, as it is or as another revision."""
        return queueing.retry(self.store, _number(identifier), revset, ask=self._ask)

    def delete(self, identifier: int | str) -> tuple[Scope, Item]:
        """Take an item out of the queue or out of the failed ones."""
        return queueing.delete(self.store, _number(identifier))

    def wait(
        self, identifier: int | str, *, timeout_s: float | None = None, note: Callable[[str], None] | None = None
    ) -> Outcome:
        """Block until an item has landed; ItemFailed, ItemGone or TimedOut otherwise."""
        return looking.wait(self.store, _number(identifier), timeout_s=timeout_s, note=note)

    # --- looking -----------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return looking.status(self.store)

    def item(self, identifier: int | str) -> ItemView:
        return looking.item(self.store, _number(identifier))

    def events(self, *, on_bad: Callable[[BadLine], None] | None = None) -> list[Event]:
        """The journal, oldest first."""
        return looking.events_of(self.store, on_bad=on_bad)

    def stats(self, *, since: str | None = None) -> Stats:
        moment = parse_since(since, self.store.clock.now()) if since else None
        return stats_of(self.events(), since=moment)

    def log_path(self, identifier: int | str) -> Path:
        """Where the output of an item's checks is."""
        return self.store.log_path(_number(identifier))

    # --- keeping house -----------------------------------------------------------------------------------------------

    def init(self, *, trunk: str | None = None, check: str | None = None, hide: bool = False) -> bool:
        return housekeeping.init(self.store, trunk=trunk, check=check, hide=hide)

    def config(self) -> dict[str, str]:
        return housekeeping.config(self.store)

    def get_config(self, key: str) -> str:
        return housekeeping.get_config(self.store, key)

    def set_config(self, key: str, value: str) -> str:
        return housekeeping.set_config(self.store, key, value)

    def clean(self, identifiers: Sequence[int | str] = (), *, dry_run: bool = False) -> list[Workspace]:
        return housekeeping.clean(self.store, [_number(one) for one in identifiers], dry_run=dry_run)

    def check(
        self, revset: str = "@", *, merged: bool = False, wait: Callable[[Check], CheckResult]
    ) -> tuple[Merge, CheckResult, str]:
        return housekeeping.check(self.store, revset, merged=merged, wait=wait)


def _asking(command: str, cwd: Path, environment: Mapping[str, str]) -> Callable[[Commit], None] | None:
    if not command:
        return None
    return lambda candidate: ask_before_push(command, candidate, cwd=cwd, environment=environment)


def _number(identifier: int | str) -> int:
    return parse_id(str(identifier))


def _note_on_stderr(text: str) -> None:
    print(f"jjq: {text}", file=sys.stderr)  # noqa: T201
