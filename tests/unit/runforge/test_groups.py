"""group.json: what it says of runs, what the summary makes of them, and that foreign keys stay."""

from __future__ import annotations

from typing import Any

import pytest

from queueyard.runforge.groups import (
    fault_of,
    is_paused,
    new_group,
    places_of,
    primary_metric,
    put_job,
    put_result,
    summarise,
)
from queueyard.runforge.records import Job, JobState

AT = "2026-02-01T12:00:00.000000"
LATER = "2026-02-01T13:00:00.000000"


def group_with(*states: str, **metrics: Any) -> dict[str, Any]:
    raw = new_group("g", [f"r{number}" for number in range(len(states))], at=AT)
    for run, state in zip(raw["runs"], states, strict=True):
        run["status"] = state
        if run["run_id"] in metrics:
            name, value = metrics[run["run_id"]]
            run["primary_metric"] = {"name": name, "value": value}
    summarise(raw, at=LATER)
    return raw


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (("succeeded", "succeeded"), "completed"),
        (("succeeded", "failed"), "failed"),
        (("failed", "canceled"), "canceled"),
        (("succeeded", "queued"), "running"),
        (("failed", "running"), "running"),
        (("canceled", "pending"), "running"),
    ],
)
def test_the_status_follows_from_the_runs(states: tuple[str, ...], status: str) -> None:
    assert group_with(*states)["status"] == status


def test_the_end_is_noted_when_all_is_over_and_taken_back_when_something_is_retried() -> None:
    raw = group_with("succeeded", "failed")
    assert raw["execution"]["finished_at"] == LATER

    raw["runs"][1]["status"] = "queued"
    summarise(raw, at=LATER)

    assert (raw["status"], raw["execution"]["finished_at"]) == ("running", None)


def test_an_end_that_was_noted_stays_as_it_is() -> None:
    raw = group_with("succeeded")

    summarise(raw, at="much later")

    assert raw["execution"]["finished_at"] == LATER


def test_a_canceled_group_says_so_in_both_spellings() -> None:
    raw = group_with("canceled")

    assert (raw["status"], raw["execution"]["cancelled"]) == ("canceled", True)


def test_the_summary_counts_and_names_the_best() -> None:
    raw = group_with("succeeded", "succeeded", "failed", r0=("accuracy", 0.7), r1=("accuracy", 0.9), r2=("accuracy", 1))

    assert raw["summary"] == {
        "total": 3,
        "succeeded": 2,
        "failed": 1,
        "canceled": 0,
        "best_run_id": "r1",
        "best_primary_metric": {"name": "accuracy", "value": 0.9},
    }


def test_of_losses_the_lowest_is_the_best() -> None:
    raw = group_with("succeeded", "succeeded", r0=("val_loss", 0.7), r1=("val_loss", 0.9))

    assert raw["summary"]["best_run_id"] == "r0"


def test_a_job_tells_the_status_of_its_run_and_forgets_the_last_result() -> None:
    raw = group_with("failed", r0=("accuracy", 0.1))
    raw["runs"][0]["result_ref"] = "old"

    run = put_job(raw, places_of(raw), Job(job_id="j", run_id="r0", state=JobState.QUEUED, attempt=2))

    assert (run["status"], run["result_ref"], run["primary_metric"]) == ("queued", None, None)


def test_a_run_that_the_group_does_not_know_is_added() -> None:
    raw, places = group_with("queued"), {"r0": 0}

    put_job(raw, places, Job(job_id="j", run_id="new", state=JobState.RUNNING))

    assert [run["run_id"] for run in raw["runs"]] == ["r0", "new"]
    assert places == {"r0": 0, "new": 1}


def test_a_result_is_referred_to_from_the_workspace() -> None:
    run: dict[str, Any] = {"run_id": "r0"}

    put_result(run, {"summary": {"primary_metric": {"name": "f1", "value": 0.5}}})
    assert run["result_ref"] == ".ml/runs/r0/result.json"
    assert run["primary_metric"] == {"name": "f1", "value": 0.5}

    put_result(run, None)
    assert (run["result_ref"], run["primary_metric"]) == (None, None)


@pytest.mark.parametrize(
    ("summary", "metric"),
    [
        (None, None),
        ({}, None),
        ({"metrics": {}}, None),
        ({"metrics": {"zeta": 1, "alpha": 2}}, ("alpha", 2)),
        ({"metrics": {"alpha": 2, "loss": 0.1}}, ("loss", 0.1)),
        ({"metrics": {"loss": 0.1, "f1_score": 0.8}}, ("f1_score", 0.8)),
        ({"metrics": {"f1_score": 0.8, "accuracy": 0.7}}, ("accuracy", 0.7)),
        ({"primary_metric": {"name": "mine", "value": 3}, "metrics": {"accuracy": 1}}, ("mine", 3)),
        ({"primary_metric": {"name": "mine", "value": "high"}, "metrics": {"accuracy": 1}}, ("accuracy", 1)),
        ({"metrics": {"accuracy": True, "text": "x", "none": None}}, None),
    ],
)
def test_the_primary_metric_is_named_or_chosen_in_the_order_of_the_contract(
    summary: dict[str, Any] | None, metric: tuple[str, float] | None
) -> None:
    found = primary_metric({"summary": summary})

    assert found == (None if metric is None else {"name": metric[0], "value": metric[1]})


def test_foreign_keys_stay() -> None:
    raw = group_with("queued")
    raw |= {"colour": "blue", "paused": True}
    raw["summary"]["theirs"] = 1
    raw["execution"]["theirs"] = 2
    raw["runs"][0]["theirs"] = 3

    put_job(raw, places_of(raw), Job(job_id="j", run_id="r0", state=JobState.SUCCEEDED))
    summarise(raw, at=LATER)

    assert (raw["colour"], raw["paused"], raw["summary"]["theirs"]) == ("blue", True, 1)
    assert (raw["execution"]["theirs"], raw["runs"][0]["theirs"]) == (2, 3)


@pytest.mark.parametrize(
    ("raw", "paused"), [(None, False), ({}, False), ({"paused": True}, True), ({"paused": "yes"}, False)]
)
def test_only_true_is_paused(raw: dict[str, Any] | None, paused: bool) -> None:
    assert is_paused(raw) is paused


@pytest.mark.parametrize(
    "raw",
    [{}, {"kind": "run_group"}, {"kind": "run_group", "runs": {}}, {"kind": "run_group", "runs": [{"status": "x"}]}],
)
def test_a_file_that_is_no_group_is_told(raw: dict[str, Any]) -> None:
    assert fault_of(raw)
    assert fault_of(new_group("g", ["r"], at=AT)) is None
