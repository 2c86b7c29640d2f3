"""How much memory a child holds now, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def memory_mb(pid: int) -> float:
    """That of the largest of a process and those that it started; 0 if it is gone."""
    return max(_resident_pages(one) for one in _descent(pid)) * _PAGE_MB


def _descent(pid: int) -> list[int]:
    """The process and those that it started: behind bubblewrap, the handler is a grandchild."""
    found = [pid]
    for one in found:
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text(encoding="ascii")
        except OSError:
            continue
        found += map(int, children.split())
    return found


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
