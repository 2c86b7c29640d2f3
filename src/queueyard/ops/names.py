"""Server paths: which texts are one, and when two of them are the same. Pure.

Both sides use this door, so that a path which one of them refuses never gets as far as the other. Beyond the rules of
`queueyard.kernel.paths`, names that tools of version control and of sync keep to themselves are refused: a file that
arrives in `.git/hooks` would be run.
"""

from __future__ import annotations

from functools import lru_cache
import re
import unicodedata

from queueyard.kernel.errors import UnsafePath
from queueyard.kernel.paths import safe_segment
from queueyard.ops.errors import BadServerPath

MAX_PATH_BYTES = 1024

#: folders that nobody may write into over the network, and that no scan looks into
RESERVED = frozenset({".git", ".hg", ".svn", ".jj", ".jolli", ".sync"})


#: nearly every path: plain names without a device among them, for which the long way is slow and decides the same
_PLAIN = re.compile(
    r"(?:(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:[./]|\Z))[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?:/(?!\Z)|\Z))+",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_PLAIN = 255


def server_path(text: str, *, max_bytes: int = MAX_PATH_BYTES) -> str:
    """The path in its one spelling (NFC). BadServerPath, with the code of the answer, if it is none."""
    if len(text) <= min(_LONGEST_PLAIN, max_bytes) and _PLAIN.fullmatch(text):
        return text
    path = unicodedata.normalize("NFC", text)
    if len(path.encode("utf-8", "surrogatepass")) > max_bytes:
        raise BadServerPath(
            f"the path has more than {max_bytes} bytes: {text[:60]!r}...", code="path_too_long", hint="Shorten it."
        )
    if path.startswith("/"):
        raise BadServerPath(f"not a relative path: {text!r}", code="bad_path", hint="Leave out the first slash.")
    for segment in path.split("/"):
        _check_segment(segment)
    return path


def path_key(path: str) -> str:
    """Two paths with the same key are one path on some file system, so only one file may have it."""
    if path.isascii():
        return path.lower()
    # Canonical caseless matching, as Unicode defines it: fold between two decompositions.
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


def folders_of(key: str) -> tuple[str, ...]:
    """The keys of all folders above a path: none of them may be a file."""
    return _and_above(key.rpartition("/")[0])


@lru_cache(maxsize=4_096)
def _and_above(folder: str) -> tuple[str, ...]:
    parts = folder.split("/") if folder else []
    return tuple("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))


def _check_segment(segment: str) -> None:
    try:
        safe_segment(segment)
    except UnsafePath as fault:
        raise BadServerPath(str(fault), code="bad_path", hint=fault.hint) from fault
    if segment.casefold() in RESERVED:
        raise BadServerPath(f"{segment} belongs to another tool", code="reserved_path", hint="Leave it out.")
