"""What is installed of Spark, arranged so that it starts soonest. It stands in the user's cache, and may be deleted.

A home of links: Spark puts archives of its own Python sources first on the path of every Python process that it starts.
Nothing that is compiled can be kept in an archive, so each of these processes, half a dozen in a session, would compile
all of them anew, which takes half a second. Of a home without the archives they import what is installed.

An archive of classes: what Java made of Spark's classes when it read and checked them, for the next start (`prepare`).
Java looks by itself whether it fits, and does without where it does not.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
import os
from pathlib import Path
import stat
import sysconfig
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: what its scripts look for
_PARTS_OF_A_HOME = ("bin", "jars", "sbin")
#: Whatever Java says of an archive, it says on standard output, which is ours.
_SILENT = "-Xlog:disable"
#: a number that says what kind of archive it is
_HEAD_BYTES = 4


def home_of_links(installed: Path, environment: Mapping[str, str]) -> Path | None:
    """A home of Spark for this machine; None where the package came in another way, or no folder can be made."""
    # Elsewhere than among the installed packages, other processes may find it only in the archives.
    if installed.parent != Path(sysconfig.get_paths()["purelib"]) or not (installed / "jars").is_dir():
        return None
    cache = _cache(environment)
    home = cache / f"spark-{_digest(str(installed), version('pyspark'))}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in _PARTS_OF_A_HOME:
            with suppress(FileExistsError):
                (home / part).symlink_to(installed / part)
        # All of it is run as code, so nobody else may have put it there or be able to change it.
        is_ours = _is_ours(cache) and _is_ours(home)
        is_so = is_ours and all((home / part).readlink() == installed / part for part in _PARTS_OF_A_HOME)
    except OSError:
        return None
    return home if is_so else None


def classes_in(home: Path, java: Path) -> Path:
    """Where the classes stand that this Java made of the Spark of a home of links, whether they are there or not."""
    jars = (home / "jars").stat()
    release = java / "release"
    told = release.read_text() if release.exists() else str(java)
    return home / f"classes-{_digest(str(java), told, str(jars.st_mtime_ns))}.jsa"


def java_options(classes: Path) -> list[str]:
    """To start with these classes, if they are there. Spark takes options apart at spaces that stand in no quotes."""
    return [f'"-XX:SharedArchiveFile={classes}"', _SILENT] if classes.exists() else []


def java_options_to_record(classes: Path) -> list[str]:
    """To leave them there when Java ends."""
    return [f'"-XX:ArchiveClassesAtExit={classes}"', _SILENT]


def is_whole(classes: Path) -> bool:
    """Whether Java has left all of it there: it writes the head last."""
    if not classes.exists():
        return False
    with classes.open("rb") as file:
        return any(file.read(_HEAD_BYTES))


def _is_ours(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _cache(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queueyard"


def _digest(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()[:12]
