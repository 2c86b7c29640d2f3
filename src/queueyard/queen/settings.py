"""queen's settings: `.beads/queen_config.yaml`, the environment, the flags; and who is calling.

The file is shared with the public tool: flat `key: value` lines. What we do not know in it is left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import read_document, replace_file
from queueyard.kernel.clock import parse_duration
from queueyard.kernel.errors import BadSettings, QueueyardError
from queueyard.kernel.settings import Layer, Settled, settle
from queueyard.queen.errors import InvalidValue, NoIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG_NAME = "queen_config.yaml"
DEFAULT_TTL = "2h"

_QUOTED = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")

#: the first one that is set says who is calling
_IDENTITY_VARIABLES = ("QUEEN_AGENT", "QUEEN_DROID", "FACTORY_DROID")


class QueenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set, with its default."""

    #: who is calling, where neither flag nor environment says
    agent: str | None = None
    #: how long a reservation holds: 90s, 45m, 2h, 1d
    ttl: str = DEFAULT_TTL
    #: whether a shared reservation and an exclusive one refuse each other
    strict: bool = False
    #: whether an issue must exist in Beads before it is assigned
    check_issues: bool = True
    #: how long a command waits for another one that writes, seconds
    lock_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        try:
            parse_ttl(self.ttl)
        except QueueyardError as fault:
            raise ValueError(f"ttl: {fault}") from fault


SETTING_NAMES = tuple(QueenSettings.__struct_fields__)


def parse_ttl(text: str) -> float:
    """Seconds. InvalidValue for zero and below, BadTime for anything that is no duration."""
    seconds = parse_duration(text).total_seconds()
    if seconds <= 0:
        raise InvalidValue(f"the time to live must be longer than zero, not {text}", hint="For example: --ttl 2h")
    return seconds


def load(beads: Path, environment: Mapping[str, str], *, agent: str | None = None) -> Settled[QueenSettings]:
    """The settings in force. BadSettings lists every fault at once."""
    variables = {name: environment.get(f"QUEEN_{name.upper()}") or None for name in SETTING_NAMES}
    variables["agent"] = next((environment[name] for name in _IDENTITY_VARIABLES if environment.get(name)), None)
    return settle(
        QueenSettings,
        [
            Layer(name="flag", values={"agent": agent}),
            Layer(
                name="environment",
                values=variables,
                spelling={name: f"QUEEN_{name.upper()}" for name in SETTING_NAMES},
            ),
            _file_layer(beads / CONFIG_NAME),
        ],
    )


def identity(settings: QueenSettings) -> str:
    """Who is calling. NoIdentity if nobody said."""
    if not settings.agent:
        raise NoIdentity(
            "who are you? no agent is set",
            hint="Use --agent NAME, export QUEEN_AGENT=NAME, or: queen config set agent NAME",
        )
    return settings.agent


def check_name(name: str) -> str:
    """The setting; `droid` is the old name of `agent`. BadSettings, with a suggestion, for any other."""
    settle(QueenSettings, [Layer(name="command line", values={"agent" if name == "droid" else name: None})])
    return "agent" if name == "droid" else name


def store_setting(beads: Path, name: str, value: str) -> Path:
    """Write one setting into the file; all other lines, comments too, stay as they are. The path of the file."""
    name, value = check_name(name), value.strip()
    if not value.isprintable():
        raise InvalidValue(f"a setting is one line of text, not {value!r}", hint="Leave out what cannot be printed.")
    settle(QueenSettings, [Layer(name="command line", values={name: value})])
    path = beads / CONFIG_NAME
    text = read_document(path, lambda raw: raw.decode("utf-8"), repair=f"Correct it: $EDITOR {path}") or ""
    lines = _with_setting(text.splitlines(), name, value)
    replace_file(path, "".join(f"{line}\n" for line in lines).encode())
    return path


def _file_layer(path: Path) -> Layer:
    text = read_document(path, lambda raw: raw.decode("utf-8"), repair=f"Correct it: $EDITOR {path}") or ""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key = _key_of(line)
        if key is None:
            # Indented lines and lists belong to a key of another tool.
            if line.strip() and line[:1] not in {" ", "\t", "#", "-"}:
                raise BadSettings(f"{path}: line {number} is not `key: value`", hint=f"Correct it: $EDITOR {path}")
            continue
        values[key], _ = _value_and_comment(line)
    # `droid` is the old name of `agent`; keys of other tools are theirs.
    values["agent"] = values.get("agent") or values.get("droid") or ""
    known = {key: value for key, value in values.items() if key in SETTING_NAMES and value}
    return Layer(name=str(path), values=known)


def _with_setting(lines: list[str], name: str, value: str) -> list[str]:
    """The lines with the new value where the old one stood, and the comment behind it kept; else at the end."""
    places = [at for at, line in enumerate(lines) if _key_of(line) in {name, "droid" if name == "agent" else name}]
    new = f"{name}: {_quoted(value)}"
    if not places:
        return [*lines, new]
    _, comment = _value_and_comment(lines[places[0]])
    return [new + comment if at == places[0] else line for at, line in enumerate(lines) if at not in places[1:]]


def _key_of(line: str) -> str | None:
    if line[:1] in {" ", "\t", "#", "-"} or ":" not in line:
        return None
    return line.split(":", 1)[0].strip()


def _value_and_comment(line: str) -> tuple[str, str]:
    rest = line.split(":", 1)[1]
    quoted = _QUOTED.match(rest)
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1] or quoted[2] or ""), rest[quoted.end() :]
    value, mark, comment = rest.partition(" #")
    return value.strip(), mark + comment


def _quoted(value: str) -> str:
    plain = value.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
