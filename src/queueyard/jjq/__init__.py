"""jjq: a local merge queue for the jj version control system.

`Jjq` is the library; it is imported when first asked for, so that `jjq --help` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.jjq.service import Jjq

__all__ = ["Jjq"]


def __getattr__(name: str) -> Any:
    if name == "Jjq":
        from queueyard.jjq.service import Jjq  # noqa: PLC0415

        return Jjq
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
