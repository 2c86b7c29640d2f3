"""Sweep plans: what they mean, and every way in which they can be wrong."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.runforge.errors import InvalidPlan
from queueyard.runforge.plans import MOST_RUNS, read_plan

PLAN: dict[str, Any] = {
    "version": 1,
    "kind": "sweep_plan",
    "created_at": "2026-02-01T15:00:00Z",
    "created_by": "somebody@1",
    "workspace": "/somewhere",
    "group": {"name": "depth", "notes": "all of them"},
    "base_request": {"version": 1, "model": {"family": "random_forest", "hyperparameters": {"random_state": 42}}},
    "strategy": {
        "type": "grid",
        "parameters": [
            {"path": "model.hyperparameters.n_estimators", "values": [50, 100]},
            {"path": "model.hyperparameters.max_depth", "values": [None, 10, 30]},
        ],
    },
    "execution": {"max_parallel": 2, "fail_fast": True, "stop_on_cancel": False},
}


def changed(**fields: Any) -> dict[str, Any]:
    """The plan with fields replaced, by dotted path; `...` takes one away."""
    plan = deepcopy(PLAN)
    for path, value in fields.items():
        *above, last = [int(step) if step.isdecimal() else step for step in path.split("__")]
        target: Any = plan
        for step in above:
            target = target[step]
        if value is ...:
            del target[last]
        else:
            target[last] = value
    return plan


def faults_of(raw: object) -> list[str]:
    with pytest.raises(InvalidPlan) as caught:
        read_plan(raw)
    assert caught.value.exit_code == 6
    assert all(fault in str(caught.value) for fault in caught.value.faults)
    return caught.value.faults


def test_a_grid_is_the_product_with_the_last_parameter_fastest() -> None:
    runs = read_plan(PLAN).runs

    assert [list(run.overrides.values()) for run in runs] == [
        [50, None],
        [50, 10],
        [50, 30],
        [100, None],
        [100, 10],
        [100, 30],
    ]


def test_overrides_are_set_in_the_request_and_null_takes_the_key_away() -> None:
    base = changed(base_request__model__hyperparameters__max_depth=5)

    runs = read_plan(base).runs

    assert runs[0].request["model"]["hyperparameters"] == {"random_state": 42, "n_estimators": 50}
    assert runs[1].request["model"]["hyperparameters"]["max_depth"] == 10
    assert base["base_request"]["model"]["hyperparameters"]["max_depth"] == 5


def test_objects_on_the_way_are_made() -> None:
    plan = changed(strategy__parameters=[{"path": "device.gpu.memory", "values": [1]}])

    assert read_plan(plan).runs[0].request["device"] == {"gpu": {"memory": 1}}


def test_a_number_in_a_path_is_a_place_in_a_list() -> None:
    plan = changed(
        base_request={"version": 1, "command": ["train", "--lr", "?"]},
        strategy__parameters=[{"path": "command.2", "values": [0.1, 0.2]}],
    )

    assert [run.request["command"] for run in read_plan(plan).runs] == [["train", "--lr", 0.1], ["train", "--lr", 0.2]]


def test_a_single_value_is_a_list_of_one() -> None:
    plan = changed(strategy__parameters=[{"path": "a", "values": 7}])

    assert [run.overrides for run in read_plan(plan).runs] == [{"a": 7}]


def test_a_list_is_zipped() -> None:
    plan = changed(
        strategy={"type": "list", "parameters": [{"path": "a", "values": [1, 2]}, {"path": "b", "values": ["x", "y"]}]}
    )

    assert [run.overrides for run in read_plan(plan).runs] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_a_list_may_be_given_as_overrides() -> None:
    plan = changed(strategy={"type": "list", "overrides": [{"a": 1}, {"a": 2, "b": 3}, {}]})

    assert [run.overrides for run in read_plan(plan).runs] == [{"a": 1}, {"a": 2, "b": 3}, {}]


def test_what_is_not_said_has_its_default() -> None:
    plan = read_plan(changed(execution=..., group__name=..., group__notes=...))

    assert (plan.name, plan.notes) == ("Unnamed Sweep", None)
    assert (plan.max_parallel, plan.fail_fast, plan.stop_on_cancel) == (1, False, True)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"version": 2}, "version"),
        ({"version": "1"}, "version"),
        ({"version": True}, "version"),
        ({"version": ...}, "version"),
        ({"kind": "plan"}, "kind"),
        ({"workspace": ""}, "workspace"),
        ({"workspace": 7}, "workspace"),
        ({"workspace": ...}, "workspace"),
        ({"group": None}, "group"),
        ({"group__name": 7}, "group.name"),
        ({"group__notes": []}, "group.notes"),
        ({"base_request": {}}, "base_request"),
        ({"base_request": None}, "base_request"),
        ({"base_request": {"version": 1, "command": "rm -rf"}}, "base_request.command"),
        ({"strategy": None}, "strategy"),
        ({"strategy__type": "random"}, "strategy.type"),
        ({"strategy__type": ...}, "strategy.type"),
        ({"strategy__parameters": []}, "strategy.parameters"),
        ({"strategy__parameters": ...}, "strategy.parameters"),
        ({"strategy__parameters": "C"}, "strategy.parameters"),
        ({"strategy__parameters__0": 7}, "strategy.parameters[0]"),
        ({"strategy__parameters__0": {"values": [1]}}, "strategy.parameters[0].path"),
        ({"strategy__parameters__0": {"path": "", "values": [1]}}, "strategy.parameters[0].path"),
        ({"strategy__parameters__0": {"path": "a..b", "values": [1]}}, "strategy.parameters[0].path"),
        ({"strategy__parameters__0": {"path": "a"}}, "strategy.parameters[0].values"),
        ({"strategy__parameters__0": {"path": "a", "values": []}}, "strategy.parameters[0].values"),
        ({"strategy__parameters__1__path": "model.hyperparameters.n_estimators"}, "strategy.parameters[1].path"),
        ({"strategy__parameters__0": {"path": "a", "values": [0] * (MOST_RUNS + 1)}}, "strategy.parameters"),
        ({"strategy__parameters__0": {"path": "version.x", "values": [1]}}, "strategy"),
        ({"strategy__type": "list"}, "strategy.parameters[1].values"),
        ({"strategy": {"type": "list", "overrides": []}}, "strategy.overrides"),
        ({"strategy": {"type": "list", "overrides": [7]}}, "strategy.overrides[0]"),
        ({"strategy": {"type": "list", "overrides": [{"": 7}]}}, "strategy.overrides[0]"),
        ({"strategy": {"type": "grid", "overrides": [{}]}}, "strategy.overrides"),
        ({"strategy__overrides": [{}], "strategy__type": "list"}, "strategy.overrides"),
        ({"execution": 7}, "execution"),
        ({"execution__max_parallel": 0}, "execution.max_parallel"),
        ({"execution__max_parallel": "two"}, "execution.max_parallel"),
        ({"execution__max_parallel": True}, "execution.max_parallel"),
        ({"execution__max_parallel": 1.5}, "execution.max_parallel"),
        ({"execution__fail_fast": "no"}, "execution.fail_fast"),
        ({"execution__stop_on_cancel": 1}, "execution.stop_on_cancel"),
    ],
    ids=str,
)
def test_a_fault_names_its_field(fields: dict[str, Any], field: str) -> None:
    faults = faults_of(changed(**fields))

    assert [fault.partition(":")[0] for fault in faults] == [field]


def test_all_faults_are_told_at_once() -> None:
    faults = faults_of(changed(version=2, kind="x", execution__max_parallel=0))

    assert [fault.partition(":")[0] for fault in faults] == ["version", "kind", "execution.max_parallel"]


@pytest.mark.parametrize("raw", [None, 7, [], "plan"])
def test_what_is_no_object_is_no_plan(raw: object) -> None:
    assert faults_of(raw) == ["$: a plan is a JSON object"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(key=st.sampled_from(sorted(PLAN)), value=_json)
def test_whatever_stands_in_a_field_it_is_a_plan_or_refused_with_a_reason(key: str, value: Any) -> None:
    try:
        read_plan(PLAN | {key: value})
    except InvalidPlan as fault:
        assert fault.faults  # noqa: PT017  either is fine
