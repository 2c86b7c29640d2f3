"""ops: resumable pushes of file operations in durable batches, and an idempotent server.

`Ops` is the library, `resume` sends what is queued, `pull` brings what others changed. They are imported when first
asked for, so that `jolli-ops --help` stays fast. No file here may have the name of one: it would take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.ops.pulling import pull
    from queueyard.ops.service import Ops
    from queueyard.ops.worker import resume

__all__ = ["Ops", "pull", "resume"]


def __getattr__(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    homes = {"Ops": "service", "pull": "pulling", "resume": "worker"}
    if name in homes:
        return getattr(import_module(f"{__name__}.{homes[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
