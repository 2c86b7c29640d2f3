"""Settings of one system: one frozen struct, filled from layers, every fault reported at once.

Layers are given from the strongest to the weakest (flags, environment, file); what no layer names keeps the
struct's default. `origin` remembers which layer won, so that `config --origin` can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
import difflib
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from queueyard.kernel.errors import BadSettings, explaining

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_S = TypeVar("_S", bound=msgspec.Struct)


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One place that settings come from."""

    #: as shown to the user: "flag", "environment", or the path of a file
    name: str
    #: setting -> raw value; None means that this layer does not say
    values: Mapping[str, Any]
    #: how the layer calls a setting, for messages: {"ttl": "QUEEN_TTL"}
    spelling: Mapping[str, str] | None = None

    def spelled(self, setting: str) -> str:
        return (self.spelling or {}).get(setting, setting)


class Settled(msgspec.Struct, Generic[_S], frozen=True, kw_only=True):
    """The settings in force, and where each one came from."""

    values: _S
    #: setting -> name of the layer that won, or "default"
    origin: Mapping[str, str]


def settle(kind: type[_S], layers: Sequence[Layer]) -> Settled[_S]:
    """Merge the layers. BadSettings lists every unknown name and every value of the wrong type, with its place."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    faults = [_unknown(layer, name, fields) for layer in layers for name in layer.values if name not in fields]
    chosen: dict[str, Any] = {}
    origin = dict.fromkeys(fields, "default")
    for layer in reversed(layers):
        for name, raw in layer.values.items():
            if name not in fields or raw is None:
                continue
            try:
                chosen[name] = msgspec.convert(raw, fields[name].type, strict=not isinstance(raw, str))
            except msgspec.ValidationError as fault:
                faults.append(f"{layer.spelled(name)} ({layer.name}): {fault}")
            origin[name] = layer.name
    try:
        values = kind(**chosen)
    except ValueError as fault:  # a rule of the struct's own, in __post_init__
        faults.append(str(fault))
    else:
        if not faults:
            return Settled(values=values, origin=origin)
    raise BadSettings(
        "these settings are wrong:\n" + "\n".join(f"  - {fault}" for fault in faults),
        hint="Correct them all, then run the same command again.",
    )


def environment_layer(kind: type[msgspec.Struct], prefix: str, environment: Mapping[str, str]) -> Layer:
    """`<PREFIX>_<SETTING>` for every setting of `kind`; an empty variable says nothing."""
    spelling = {field.name: f"{prefix}_{field.name}".upper() for field in msgspec.structs.fields(kind)}
    values = {name: environment.get(variable) or None for name, variable in spelling.items()}
    return Layer(name="environment", values=values, spelling=spelling)


def file_layer(path: Path, table: str | None = None) -> Layer:
    """A TOML file, or one table of it; a missing file says nothing. BadSettings if it is not TOML."""
    import tomllib  # noqa: PLC0415  most commands meet no file

    with explaining("read", path):
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return Layer(name=str(path), values={})
    try:
        values: Any = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise BadSettings(f"{path} is not a TOML file: {fault}", hint=f"Correct it: $EDITOR {path}") from fault
    values = values.get(table, {}) if table else values
    if not isinstance(values, dict):
        raise BadSettings(f"{path}: {table} must be a table", hint=f"Write [{table}] above its settings.")
    return Layer(name=str(path), values=values)


def _unknown(layer: Layer, name: str, fields: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, fields, n=1)
    return f"{layer.spelled(name)} ({layer.name}): no such setting" + (f"; did you mean {near[0]}?" if near else "")
