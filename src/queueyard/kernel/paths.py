r"""The only door from text to a path.

Whatever `safe_segment` and `safe_join` accept stays below the root, on every platform that may later read the
same data: no `..`, no absolute path, no backslash, no drive letter, no control character, no trailing dot or
space, nothing that is not Unicode. Texts are brought to NFC first, so that one name has one spelling.

A symlink on the way is followed only while it stays below the root. That holds at the moment of the call; who
plants links in the root between call and use must be kept out by the folder's permissions.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
import unicodedata

from queueyard.kernel.errors import UnsafePath

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_SEGMENT_BYTES = 255
_LONGEST_PATH_BYTES = 4095
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)


def safe_segment(text: str) -> str:
    """One name without folders, in NFC. UnsafePath says which rule it breaks."""
    name = unicodedata.normalize("NFC", text)
    fault = _fault_of(name)
    if fault:
        raise UnsafePath(
            f"not a safe file name: {text!r} {fault}", hint="Use letters, digits, '-', '_' and '.' within."
        )
    return name


def safe_join(root: Path, text: str) -> Path:
    """`root` joined with a relative path written with `/`. UnsafePath if it could end anywhere else."""
    if text.startswith("/"):
        raise UnsafePath(f"not a relative path: {text!r}", hint=f"Write it relative to {root}.")
    joined = root.joinpath(*(safe_segment(segment) for segment in text.split("/")))
    if len(os.fsencode(joined)) > _LONGEST_PATH_BYTES:
        raise UnsafePath(f"path too long: {text[:80]!r}...", hint="Shorten the names of its folders.")
    _refuse_links_that_leave(root, joined, text)
    return joined


def _fault_of(name: str) -> str | None:
    checks = (
        (not name, "is empty"),
        (name in {".", ".."}, "is a step, not a name"),
        ("/" in name or "\\" in name, "holds a slash or backslash"),
        (
            any(unicodedata.category(character) in {"Cc", "Cs"} for character in name),
            "holds control characters",
        ),
        (name.endswith((".", " ")), "ends with a dot or a space"),
        (bool(_DRIVE.match(name)), "starts with a drive letter"),
        (bool(_DEVICE.fullmatch(name)), "is the name of a device"),
        (len(name.encode("utf-8", "surrogatepass")) > _LONGEST_SEGMENT_BYTES, "is longer than 255 bytes"),
    )
    return next((fault for broken, fault in checks if broken), None)


def _refuse_links_that_leave(root: Path, joined: Path, text: str) -> None:
    try:
        real_root = root.resolve()
        real = joined.resolve()
    except (OSError, RuntimeError) as fault:  # RuntimeError: a loop of links
        raise UnsafePath(f"cannot follow {text!r} below {root}: {fault}", hint=f"ls -l {joined}") from fault
    if real != real_root and real_root not in real.parents:
        raise UnsafePath(f"{text!r} leaves {root} through a symbolic link", hint=f"ls -l {joined}")
