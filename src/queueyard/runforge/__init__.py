"""runforge: an execution queue for experiment runs and sweeps, fair by group.

`RunForge` is the library; it is imported when first asked for, so that `runforge-cli --help` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.runforge.service import RunForge

__all__ = ["RunForge"]


def __getattr__(name: str) -> Any:
    if name == "RunForge":
        from queueyard.runforge.service import RunForge  # noqa: PLC0415

        return RunForge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
