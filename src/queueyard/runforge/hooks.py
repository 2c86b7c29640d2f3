"""Commands that are told about the end of a group. A hook is never waited for, and never holds anything up."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from queueyard.kernel import proc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from queueyard.kernel.clock import Clock
    from queueyard.runforge.poller import Poller
    from queueyard.runforge.records import Raw

#: a hook that takes longer is killed
LONGEST_S = 60.0


class Hooks:
    """The hooks that are running."""

    def __init__(self, poller: Poller, clock: Clock, complain: Callable[[str], None]) -> None:
        self._poller = poller
        self._clock = clock
        self._complain = complain
        #: descriptor of the process -> process and when it is killed, monotonic
        self._running: dict[int, tuple[proc.Child, float]] = {}

    def group_ended(self, argv: Sequence[str], group: Raw, *, env: Mapping[str, str], cwd: Path) -> None:
        """Start the hook; what it needs to know is in its environment."""
        summary = group.get("summary", {})
        told = {
            "RUNFORGE_GROUP_ID": str(group.get("group_id")),
            "RUNFORGE_GROUP_NAME": str(group.get("name")),
            "RUNFORGE_GROUP_STATUS": str(group.get("status")),
            **{
                f"RUNFORGE_{key.upper()}": str(summary.get(key)) for key in ("total", "succeeded", "failed", "canceled")
            },
            "RUNFORGE_BEST_RUN_ID": str(summary.get("best_run_id") or ""),
        }
        try:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  a device, not a path
                child = proc.start(argv, env={**env, **told}, cwd=cwd, stdout=nowhere, stderr=nowhere)
        except OSError as fault:
            self._complain(f"the hook {argv[0]} cannot be started: {fault}")
            return
        descriptor = os.pidfd_open(child.pid)
        self._running[descriptor] = child, self._clock.monotonic() + LONGEST_S
        self._poller.register(descriptor, lambda: self._ended(descriptor))

    def enforce(self) -> None:
        """Kill hooks that take too long."""
        now = self._clock.monotonic()
        for child, deadline_s in self._running.values():
            if now >= deadline_s:
                proc.signal_group(child.pid, signal.SIGKILL)

    def next_due_s(self) -> float | None:
        return min((deadline_s for _, deadline_s in self._running.values()), default=None)

    def __len__(self) -> int:
        return len(self._running)

    def _ended(self, descriptor: int) -> None:
        child, _ = self._running.pop(descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        code = child.wait()
        if code:
            self._complain(f"the hook for the end of a group failed with exit code {code}")
