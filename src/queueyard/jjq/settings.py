"""jjq's configuration: the keys on the metadata branch, and the few settings of the caller.

The keys without a dot are the spec's; those that start with `queueyard.` are ours (spec: Extensions). A value that
makes no sense is refused when it is written, and an error with its repair when another tool wrote it.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import InvalidValue, UnknownKey
from queueyard.kernel.settings import environment_layer, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TRUNK_BOOKMARK = "trunk_bookmark"
CHECK_COMMAND = "check_command"
MAX_FAILURES = "max_failures"
CHECK_TIMEOUT_S = "queueyard.check_timeout_s"
FLAKY_RETRIES = "queueyard.flaky_retries"
REUSE_CHECKS = "queueyard.reuse_checks"
KEEP_ENVIRONMENT = "queueyard.keep_environment"

#: key -> default, in the order in which they are shown
DEFAULTS: Mapping[str, str] = {
    TRUNK_BOOKMARK: "main",
    CHECK_COMMAND: "sh -c 'exit 1'",
    MAX_FAILURES: "3",
    CHECK_TIMEOUT_S: "0",
    FLAKY_RETRIES: "0",
    REUSE_CHECKS: "true",
    KEEP_ENVIRONMENT: "",
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How this caller wants jjq to behave: JJQ_LOCK_TIMEOUT_S and so on."""

    #: how long to wait for another process that takes an id or writes configuration, seconds
    lock_timeout_s: float = 10.0
    #: how often a long check says that it still runs, where there is no terminal, seconds
    heartbeat_s: float = 15.0
    #: words of a command that is asked before something is queued; it refuses by any exit code but 0
    before_push: str = ""
    #: words of a command that is told when an item landed or failed, by its event on stdin
    after_item: str = ""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configuration of one repository."""

    #: bookmark that candidates land on
    trunk_bookmark: str
    #: run by a POSIX shell in the merged tree
    check_command: str
    #: failed items that status shows
    max_failures: int
    #: a check that takes longer is killed and has failed; None for no limit
    check_timeout_s: float | None
    #: how often a failing check is tried again before it counts
    flaky_retries: int
    #: whether a tree that passed the same command before is not checked again by run --all, --watch, --jobs and --batch
    reuse_checks: bool
    #: variables that a check sees although their name sounds like a secret
    keep_environment: tuple[str, ...]


def load_settings(environment: Mapping[str, str]) -> Settings:
    """From JJQ_* variables. BadSettings lists every fault at once."""
    return settle(Settings, [environment_layer(Settings, "JJQ", environment)]).values


def check_key(key: str) -> str:
    """UnknownKey, with a suggestion, if there is no such key."""
    if key not in DEFAULTS:
        near = difflib.get_close_matches(key, DEFAULTS, n=1, cutoff=0.5)
        raise UnknownKey(
            f"no such configuration key: {key!r}",
            hint=f"Did you mean {near[0]}?" if near else f"The keys are: {', '.join(DEFAULTS)}",
        )
    return key


def check_value(key: str, value: str) -> str:
    """The value as it is stored. InvalidValue says what the key allows."""
    text = value.strip()
    if "\n" in text or "\0" in text:
        raise InvalidValue(f"{key} must be one line", hint="Put a longer command into a script, and name the script.")
    _READERS[key](key, text)
    return text


def effective(stored: Mapping[str, str]) -> dict[str, str]:
    """Every key with its stored value or default, as text; stored keys of other tools are theirs."""
    return {key: stored.get(key, default) for key, default in DEFAULTS.items()}


def read_config(stored: Mapping[str, str]) -> Config:
    """The typed view. InvalidValue names the first stored value that makes no sense, and its repair."""
    values = effective(stored)
    for key, text in values.items():
        try:
            _READERS[key](key, text)
        except InvalidValue as fault:
            raise InvalidValue(f"the repository's configuration is wrong: {fault}", hint=_repair(key)) from fault
    timeout_s = float(values[CHECK_TIMEOUT_S])
    return Config(
        trunk_bookmark=values[TRUNK_BOOKMARK],
        check_command=values[CHECK_COMMAND],
        max_failures=int(values[MAX_FAILURES]),
        check_timeout_s=timeout_s or None,
        flaky_retries=int(values[FLAKY_RETRIES]),
        reuse_checks=values[REUSE_CHECKS] == "true",
        keep_environment=tuple(values[KEEP_ENVIRONMENT].split()),
    )


def _repair(key: str) -> str:
    return f"Write it anew: jjq config {key} {DEFAULTS[key] or repr('')}"


def _text(key: str, text: str) -> None:
    if not text:
        raise InvalidValue(f"{key} must not be empty", hint=f"For example: jjq config {key} {DEFAULTS[key]!r}")


def _count(key: str, text: str) -> None:
    if not (text.isascii() and text.isdigit()):
        raise InvalidValue(f"{key} must be a non-negative integer, not {text!r}", hint=f"jjq config {key} 3")


def _seconds(key: str, text: str) -> None:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0 or not math.isfinite(seconds):
        raise InvalidValue(
            f"{key} must be a number of seconds, 0 for no limit, not {text!r}", hint=f"jjq config {key} 600"
        )


def _switch(key: str, text: str) -> None:
    if text not in {"true", "false"}:
        raise InvalidValue(f"{key} must be true or false, not {text!r}", hint=f"jjq config {key} true")


def _anything(_key: str, _text: str) -> None:
    """Words without rules."""


_READERS: Mapping[str, Callable[[str, str], None]] = {
    TRUNK_BOOKMARK: _text,
    CHECK_COMMAND: _text,
    MAX_FAILURES: _count,
    CHECK_TIMEOUT_S: _seconds,
    FLAKY_RETRIES: _count,
    REUSE_CHECKS: _switch,
    KEEP_ENVIRONMENT: _anything,
}
