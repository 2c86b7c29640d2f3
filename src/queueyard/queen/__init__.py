"""queen: messages, assignments and file reservations between agents, in append-only files that git can carry.

`Queen` is the library; it is imported when first asked for, so that `queen --help` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.queen.service import Queen

__all__ = ["Queen"]


def __getattr__(name: str) -> Any:
    if name == "Queen":
        from queueyard.queen.service import Queen  # noqa: PLC0415

        return Queen
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
