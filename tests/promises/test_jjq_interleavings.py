"""Whatever users do while a check runs: what lands is exactly what was checked. A sample; the whole is in chaos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jj_repositories import copy_of
from jjq_interleavings import broken_promises, meddle, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
