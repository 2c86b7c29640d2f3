"""One empty repository per test, and queen's parts on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pytest

from queueyard.kernel.testing import FakeClock
from queueyard.queen import Queen
from queueyard.queen.home import Home
from queueyard.queen.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Writer(Protocol):
    """Appends lines to a file of `.beads` as another tool does: without any lock."""

    def __call__(self, name: str, *lines: dict[str, Any] | bytes) -> Path: ...


@pytest.fixture
def home(tmp_path: Path) -> Home:
    beads = tmp_path / ".beads"
    beads.mkdir()
    return Home(beads=beads, root=tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(home: Home, clock: FakeClock) -> Iterator[Store]:
    store = Store(home, clock=clock)
    yield store
    store.close()


@pytest.fixture
def queen_of(home: Home, clock: FakeClock) -> Iterator[Callable[[str], Queen]]:
    """`queen_of("ui")` is agent ui's view of the repository."""
    opened: list[Queen] = []

    def open_one(agent: str) -> Queen:
        opened.append(Queen.open(home.root, agent=agent, environment={}, clock=clock))
        return opened[-1]

    yield open_one
    for queen in opened:
        queen.close()


@pytest.fixture
def write(home: Home) -> Writer:
    """A dict is written as JSON with its newline, bytes as they are."""

    def append(name: str, *lines: dict[str, Any] | bytes) -> Path:
        with (home.beads / name).open("ab") as stream:
            for line in lines:
                stream.write(line if isinstance(line, bytes) else msgspec.json.encode(line) + b"\n")
        return home.beads / name

    return append
