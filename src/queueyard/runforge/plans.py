"""Sweep plans: what is a valid one, and which runs it means. Pure.

A plan is checked as a whole: every fault is named with its field. The plan stays a plain dict, because it is copied
to the group as it is.
"""

from __future__ import annotations

from itertools import product
import math
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.runforge.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.runforge.records import Raw

#: more runs than this is a slip of the pen
MOST_RUNS = 100_000

_UNNAMED = "Unnamed Sweep"
_HINT = "The fields are described in docs/systems/runforge.md, section Sweep plans."


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a sweep."""

    #: parameter path -> value
    overrides: dict[str, Any]
    #: the whole request
    request: dict[str, Any]


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that was checked."""

    workspace: str
    name: str
    notes: str | None
    max_parallel: int
    fail_fast: bool
    stop_on_cancel: bool
    runs: list[RunPlan]


def read_plan(raw: object) -> SweepPlan:
    """The plan behind a decoded file. InvalidPlan lists all that is wrong with it."""
    faults = list(_faults(raw))
    if faults or not isinstance(raw, dict):
        raise InvalidPlan(faults, hint=_HINT)
    execution = raw.get("execution") or {}
    return SweepPlan(
        workspace=raw["workspace"],
        name=raw["group"].get("name") or _UNNAMED,
        notes=raw["group"].get("notes"),
        max_parallel=execution.get("max_parallel", 1),
        fail_fast=execution.get("fail_fast", False),
        stop_on_cancel=execution.get("stop_on_cancel", True),
        runs=list(_run_plans(raw["strategy"], raw["base_request"])),
    )


def _run_plans(strategy: Raw, base: Raw) -> Iterator[RunPlan]:
    # Decoding a text is several times faster than copying the object behind it.
    template = msgspec.json.encode(base)
    for number, overrides in enumerate(_combinations(strategy)):
        request: Raw = msgspec.json.decode(template)
        try:
            for path, value in overrides.items():
                _set(request, path.split("."), value)
            _check_request(request)
        except ValueError as fault:
            raise InvalidPlan([f"strategy: run {number} cannot be made: {fault}"], hint=_HINT) from fault
        yield RunPlan(overrides=overrides, request=request)


def _check_request(request: Raw) -> None:
    if "command" in request and not is_command(request["command"]):
        raise ValueError(f"command must be a list of words, not {_told(request['command'])}")


def is_command(command: object) -> bool:
    """Whether it is an argument list; numbers are words too, since sweeps put them there."""
    return isinstance(command, list) and bool(command) and all(_is_word(word) for word in command)


def _is_word(word: object) -> bool:
    return isinstance(word, str | int | float) and not isinstance(word, bool)


def _combinations(strategy: Raw) -> Iterator[dict[str, Any]]:
    """One dict of overrides per run: the product of a grid, last parameter fastest; the rows of a list."""
    if "overrides" in strategy:
        yield from strategy["overrides"]
        return
    paths = [parameter["path"] for parameter in strategy["parameters"]]
    values = [_as_list(parameter["values"]) for parameter in strategy["parameters"]]
    rows = product(*values) if strategy["type"] == "grid" else zip(*values, strict=True)
    for row in rows:
        yield dict(zip(paths, row, strict=True))


def _as_list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _set(target: Any, path: list[str], value: Any) -> None:
    """Follow the path, making objects on the way; null takes the leaf away. ValueError if something stands in it."""
    for depth, step in enumerate(path[:-1]):
        target = _into(target, step, path[:depth])
        if not isinstance(target, dict | list):
            raise ValueError(f"{'.'.join(path[: depth + 1])} is not an object")  # noqa: TRY004  told as a fault
    if isinstance(target, list):
        target[_place(target, path[-1], path[:-1])] = value
    elif value is None:
        target.pop(path[-1], None)
    else:
        target[path[-1]] = value


def _into(target: Any, step: str, above: list[str]) -> Any:
    if isinstance(target, list):
        return target[_place(target, step, above)]
    return target.setdefault(step, {})


def _place(target: list[Any], step: str, above: list[str]) -> int:
    if not step.isdecimal() or int(step) >= len(target):
        raise ValueError(f"{'.'.join(above)} has no item {step}")
    return int(step)


# --- faults ----------------------------------------------------------------------------------------------------------


def _faults(raw: object) -> Iterator[str]:
    if not isinstance(raw, dict):
        yield "$: a plan is a JSON object"
        return
    if raw.get("version") != 1 or isinstance(raw.get("version"), bool):
        yield f"version: must be 1, not {_told(raw.get('version'))}"
    if raw.get("kind") != "sweep_plan":
        yield f'kind: must be "sweep_plan", not {_told(raw.get("kind"))}'
    if not isinstance(raw.get("workspace"), str) or not raw["workspace"]:
        yield f"workspace: must be a path, not {_told(raw.get('workspace'))}"
    yield from _faults_of_group(raw.get("group"))
    yield from _faults_of_request(raw.get("base_request"))
    yield from _faults_of_execution(raw.get("execution"))
    yield from _faults_of_strategy(raw.get("strategy"))


def _faults_of_group(group: object) -> Iterator[str]:
    if not isinstance(group, dict):
        yield f"group: must be an object with a name, not {_told(group)}"
        return
    for key in ("name", "notes"):
        if not isinstance(group.get(key), str | None):
            yield f"group.{key}: must be a text, not {_told(group[key])}"


def _faults_of_request(request: object) -> Iterator[str]:
    if not isinstance(request, dict) or not request:
        yield f"base_request: must be a request, not {_told(request)}"
    elif "command" in request and not isinstance(request["command"], list):
        yield f"base_request.command: must be a list of words, not {_told(request['command'])}"


def _faults_of_execution(execution: object) -> Iterator[str]:
    if execution is None:
        return
    if not isinstance(execution, dict):
        yield f"execution: must be an object, not {_told(execution)}"
        return
    parallel = execution.get("max_parallel", 1)
    if not isinstance(parallel, int) or isinstance(parallel, bool) or parallel < 1:
        yield f"execution.max_parallel: must be a whole number from 1 on, not {_told(parallel)}"
    for key in ("fail_fast", "stop_on_cancel"):
        if not isinstance(execution.get(key, False), bool):
            yield f"execution.{key}: must be true or false, not {_told(execution[key])}"


def _faults_of_strategy(strategy: object) -> Iterator[str]:
    if not isinstance(strategy, dict):
        yield f"strategy: must be an object, not {_told(strategy)}"
    elif strategy.get("type") not in {"grid", "list"}:
        yield f'strategy.type: must be "grid" or "list", not {_told(strategy.get("type"))}'
    elif "overrides" in strategy:
        yield from _faults_of_overrides(strategy)
    else:
        yield from _faults_of_parameters(strategy)


def _faults_of_overrides(strategy: Raw) -> Iterator[str]:
    rows = strategy["overrides"]
    if strategy["type"] != "list":
        yield "strategy.overrides: only a list strategy has them"
    if strategy.get("parameters"):
        yield "strategy.overrides: stands in the place of parameters, not beside them"
    if not isinstance(rows, list) or not rows:
        yield f"strategy.overrides: must be a list with at least one object, not {_told(rows)}"
        return
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            yield f"strategy.overrides[{number}]: must be an object of path and value, not {_told(row)}"
        else:
            for path in row:
                yield from _faults_of_path(path, f"strategy.overrides[{number}]")


def _faults_of_parameters(strategy: Raw) -> Iterator[str]:
    parameters = strategy.get("parameters")
    if not isinstance(parameters, list) or not parameters:
        yield f"strategy.parameters: must be a list with at least one parameter, not {_told(parameters)}"
        return
    lengths: dict[int, int] = {}
    paths: set[str] = set()
    for number, parameter in enumerate(parameters):
        field = f"strategy.parameters[{number}]"
        if not isinstance(parameter, dict):
            yield f"{field}: must be an object with path and values, not {_told(parameter)}"
            continue
        yield from _faults_of_path(parameter.get("path"), f"{field}.path")
        if isinstance(parameter.get("path"), str) and parameter["path"] in paths:
            yield f"{field}.path: {parameter['path']} is already varied"
        paths.add(str(parameter.get("path")))
        if "values" not in parameter:
            yield f"{field}.values: is missing"
        elif not _as_list(parameter["values"]):
            yield f"{field}.values: has no value, so there is nothing to run"
        else:
            lengths[number] = len(_as_list(parameter["values"]))
    yield from _faults_of_lengths(strategy["type"], lengths)


def _faults_of_lengths(kind: str, lengths: dict[int, int]) -> Iterator[str]:
    if kind == "list":
        first = next(iter(lengths.values()), 0)
        for number, length in lengths.items():
            if length != first:
                yield f"strategy.parameters[{number}].values: has {length} values where the first has {first}"
    elif math.prod(lengths.values()) > MOST_RUNS:
        yield f"strategy.parameters: make {math.prod(lengths.values())} runs, more than {MOST_RUNS}"


def _faults_of_path(path: object, field: str) -> Iterator[str]:
    if not isinstance(path, str) or not all(path.split(".")):
        yield f"{field}: must be a dotted path such as model.hyperparameters.C, not {_told(path)}"


def _told(value: object) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."
