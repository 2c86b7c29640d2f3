"""The command line of bubblewrap: a world that holds Python, the handler's code and what the policy names. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def wrap(program: str, argv: Sequence[str], *, read: Iterable[str], write: Iterable[str]) -> list[str]:
    """`argv` in namespaces of its own: no network, no other processes, nothing that can be written but `write`."""
    alone = [program, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    shown = dict.fromkeys(read, "--ro-bind") | dict.fromkeys(write, "--bind")
    # Each under its own name and under the one that links to it lead to.
    places = {place: (how, real) for path, how in shown.items() for real in [_real(path)] for place in (real, path)}
    return [
        *alone,
        # Outer folders first, or they would cover what stands in them.
        *(word for place in sorted(places, key=_depth) for word in (*places[place], place)),
        *("--proc", "/proc", "--dev", "/dev"),
        # Both are in memory that no limit counts.
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", "/", "--", *argv),
    ]


def _real(path: str) -> str:
    return str(Path(path).resolve())


def _depth(path: str) -> tuple[int, str]:
    return len(Path(path).parts), path
