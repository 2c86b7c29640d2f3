"""Where handlers run: in the worker itself, in child processes, or in children that are locked in.

    from queueyard.panqueue.executors import Policy, Sandbox, Subprocess

    thumbnails = Queue("thumbnails", Image, executor=Sandbox(Policy(read=("/srv/in",), write=("/srv/out",))))

The way of a job: `crew.py` takes a warm child from its `pool.py`, `children.py` speaks with it through `channel.py`,
`child.py` is the program at the other end. A child confines itself (`confinement.py`) before it loads the handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.panqueue.executors.deno import Deno
    from queueyard.panqueue.executors.policy import Policy
    from queueyard.panqueue.executors.pool import PoolSettings
    from queueyard.panqueue.executors.tiers import Sandbox, Subprocess

__all__ = ["Deno", "Policy", "PoolSettings", "Sandbox", "Subprocess"]

_HOME_OF = {"Deno": "deno", "Policy": "policy", "PoolSettings": "pool", "Sandbox": "tiers", "Subprocess": "tiers"}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"queueyard.panqueue.executors.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
