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

_SECRETS = (
    # scheme://user:password@host
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s@]+@", re.IGNORECASE), r"\1:***@"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE), r"\1 ***"),
    (
        re.compile(
            r"""((?:token|secret|password|passwd|api[_-]?key|authorization)["']?\s*[=:]\s*["']?)(?!bearer|basic)[^\s"',;&]+""",
            re.IGNORECASE,
        ),
        r"\1***",
    ),
)


def redact(text: str) -> str:
    """The text with passwords in addresses, bearer tokens and `token=...` values replaced by `***`."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class LineFormatter(logging.Formatter):
    """`<time> <level> <logger> <message> key=value ...`, redacted."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, object] = getattr(record, "facts", {})
        words = [to_rfc3339(self._clock.now()), record.levelname.lower(), record.name, record.getMessage()]
        words += [f"{name}={value}" for name, value in facts.items()]
        if record.exc_info:
            words.append("\n" + self.formatException(record.exc_info))
        return redact(" ".join(words))


def start_logging(*, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Send the logs of all systems to `stream` (stderr); a second call replaces the first."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger("queueyard")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
