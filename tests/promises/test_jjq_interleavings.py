"""Whatever users do while a check runs: what lands is exactly what was checked. A sample; the whole is in chaos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jj_repositories import copy_of
from jjq_interleavings import broken_promises, meddle, run_to_the_end
from queueyard.jjq import Jjq
from queueyard.jjq.jj import Jj
from queueyard.jjq.worker import Silent, run_one
from queueyard.kernel.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

pytest_plugins = ("jj_fixtures",)


@pytest.mark.parametrize(
    ("kinds", "what", "at", "mode"),
    [
        (("passes", "passes", "passes"), "amend the item", 1, "run"),
        (("passes", "passes", "passes"), "amend the item", 2, "run --jobs"),
        (("passes", "fails", "passes"), "amend the item", 2, "run --all"),
        (("passes", "passes", "passes"), "amend the item", 3, "run --batch"),
        (("passes", "passes", "passes"), "amend the first item", 3, "run --jobs"),
        (("passes", "passes", "fails"), "amend the first item", 3, "run --batch"),
        (("passes", "passes", "passes"), "amend the last item", 1, "run --jobs"),
        (("passes", "passes", "passes"), "move trunk", 1, "run"),
        (("passes", "conflicts", "passes"), "move trunk", 3, "run --jobs"),
        (("fails", "passes", "passes"), "move trunk", 1, "run --all"),
        (("passes", "passes", "fails"), "move trunk", 3, "run --batch"),
        (("passes", "passes", "passes"), "delete the item", 1, "run"),
        (("passes", "passes", "passes"), "delete the item", 2, "run --jobs"),
        (("passes", "passes", "passes"), "reword the item", 2, "run --jobs"),
        (("conflicts", "conflicts", "fails"), "look around", 1, "run --jobs"),
    ],
)
def test_trunk_is_always_what_was_checked(
    kinds: tuple[str, ...],
    what: str,
    at: int,
    mode: str,
    prepared_items: Callable[[tuple[str, ...]], Path],
    tmp_path: Path,
) -> None:
    repository = copy_of(prepared_items(kinds), tmp_path / "home")
    meddle(repository, what, at=at)

    run_to_the_end(repository, mode)

    assert broken_promises(repository) == []


def test_an_amendment_at_the_very_moment_of_landing_is_checked_before_it_lands(
    prepared_items: Callable[[tuple[str, ...]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two operations side by side: trunk moves to the merge, and the candidate below the merge is rewritten."""
    repository = copy_of(prepared_items(("passes", "passes", "passes")), tmp_path / "home")
    meddle(repository, "nothing", at=1)
    real = Jj.move_bookmark
    amendments = iter(["amended"])

    def move_while_somebody_amends(jj: Jj, name: str, **where: Any) -> None:
        before = repository.jj("op", "log", "--ignore-working-copy", "--no-graph", "-n", "1", "-T", "id")
        real(jj, name, **where)
        for word in amendments:
            repository.jj("--ignore-working-copy", "--at-op", before, "describe", "--quiet", "-m", word, "item-1")

    for name, value in repository.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Jj, "move_bookmark", move_while_somebody_amends)
    queue = Jjq.open(repository.root, environment=repository.variables)

    outcome = run_one(queue.store, Silent(), Lifecycle())

    assert outcome is not None
    assert repository.one("main") == outcome.merge_commit_id
    assert sorted(repository.many("main-", "description.first_line()")) == ["amended", "base"]
    assert len((repository.home / "checked").read_text(encoding="utf-8").splitlines()) == 2
