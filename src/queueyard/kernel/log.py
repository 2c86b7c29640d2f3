"""Logs of long-running commands: one line per event on stderr, secrets never.

Ordinary commands do not log; they print (`queueyard.kernel.output`).
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, TextIO

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORD = re.compile(r"""[^\s"']+""")
_SECRETS = (
    # the scheme, if there is one, and the credentials; what looks like the next `name=value` stays
    (
        re.compile(r"""(authorization["']?\s*[=:]\s*["']?)[^\s"']+(?:\s+(?!\w+=\w)[^\s"']+)?""", re.IGNORECASE),
        r"\1***",
    ),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE), r"\1 ***"),
    # name=value, where the value may stand in quotes and hold anything, and may be cut off before its closing quote
    (
        re.compile(
            r"""((?:token|secret|password|passwd|passphrase|(?:api|access|private)[_-]?key)["']?\s*[=:]\s*)"""
            r"""(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s"'&]+)""",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
)
# Line ends, escape sequences and the like: who names a thing must not be able to write log lines.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def redact(text: str) -> str:
    """The text with passwords in addresses, bearer tokens and `token=...` values replaced by `***`.

    In doubt it takes a word too many.
    """
    # Word by word and not by one pattern, which would try a long text from each of its letters.
    text = _WORD.sub(_without_password, text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _without_password(found: re.Match[str]) -> str:
    """`scheme://user:password@host`, up to the last @ because a password may hold one, and `https://token@host`."""
    word = found.group()
    scheme, _, rest = word.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if at and colon:
        return f"{scheme}://{user}:***@{host}"
    if at and "/" not in login and scheme.lower().endswith(("http", "https")):
        return f"{scheme}://***@{host}"
    return word


def _on_one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


class LineFormatter(logging.Formatter):
    """`<time> <level> <logger> <message> key=value ...`, redacted; only a traceback takes further lines."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, object] = getattr(record, "facts", {})
        words = [to_rfc3339(self._clock.now()), record.levelname.lower(), record.name, record.getMessage()]
        words += [f"{name}={value}" for name, value in facts.items()]
        lines = [_on_one_line(" ".join(words))]
        if record.exc_info:
            lines += map(_on_one_line, self.formatException(record.exc_info).split("\n"))
        return redact("\n".join(lines))


def start_logging(*, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Send the logs of all systems to `stream` (stderr); a second call replaces the first."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger("queueyard")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
