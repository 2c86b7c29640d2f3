"""Becomes Deno, after it has set what outlives that: python deno_launch.py CPU_S PROGRAM ARGUMENT... (0: no limit)."""

from __future__ import annotations

import os
from pathlib import Path
import sys


def main(cpu_s: int, argv: list[str]) -> None:
    # Started in isolated mode: nobody else says where this package is.
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from queueyard.panqueue.executors import confinement  # noqa: PLC0415

    confinement.die_with_parent()
    confinement.hide_parent()
    if cpu_s:
        confinement.limit_processor_time(cpu_s)
    os.execv(argv[0], argv)  # noqa: S606  an argument list, and no shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
