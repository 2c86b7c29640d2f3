"""The process that Spark forks its Python workers from, on this machine (`spark.python.daemon.module`).

Spark puts archives of its own sources first on the path. Nothing that is compiled can be kept in an archive, so each
process would compile all of them anew, which takes most of a second; what is installed was compiled once.

Workers allocate by the C library: Arrow's own allocator keeps some 70 MB more in each of them, and is no faster here.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
import ctypes
import os
from pathlib import PurePath
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 128 << 20
_PACKAGES = ("pyspark", "py4j")


def without_archives(path: list[str]) -> list[str]:
    """The path without Spark's archives; as it is if a package would be found nowhere else."""
    rest = [place for place in path if not _is_archive(PurePath(place).name)]
    return rest if all(PathFinder.find_spec(package, rest) for package in _PACKAGES) else path


def _is_archive(name: str) -> bool:
    return name.endswith(".zip") and name.startswith(_PACKAGES)


def keep_freed_memory() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


if __name__ == "__main__":
    keep_freed_memory()
    sys.path[:] = without_archives(sys.path)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from pyspark.daemon import manager

    manager()
