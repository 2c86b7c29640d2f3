"""What group.json says: a new group, the state of its runs, the summary. Pure.

A group is a plain dict, because keys that we do not know belong to somebody and must survive a rewrite. It is changed
in place: a group of ten thousand runs is saved several times a second while it runs.
"""

from __future__ import annotations

from collections import Counter
import math
from typing import TYPE_CHECKING, Any

from queueyard import __version__
from queueyard.runforge.records import ENDED, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from queueyard.runforge.plans import SweepPlan
    from queueyard.runforge.records import Job, Raw

CREATED_BY = f"runforge-cli@{__version__}"

#: in this order, where a result names no primary metric (result contract)
_PRIMARY_METRICS = ("accuracy", "f1_score", "loss")


def new_group(
    group_id: str,
    run_ids: Iterable[str],
    *,
    at: str,
    plan: SweepPlan | None = None,
    status: str = "queued",
) -> Raw:
    """A group as it is when its runs were just made; without a plan, one for runs that were enqueued one by one."""
    overrides = [run.overrides for run in plan.runs] if plan else []
    runs = [_new_run(run_id, status) for run_id in run_ids]
    for run, varied in zip(runs, overrides, strict=False):
        run["request_overrides"] = varied
    raw: Raw = {
        "version": 1,
        "kind": "run_group",
        "group_id": group_id,
        "created_at": at,
        "created_by": CREATED_BY,
        "name": plan.name if plan else group_id,
        "notes": plan.notes if plan else None,
        "plan_ref": "plan.json" if plan else None,
        "status": "running",
        "execution": {
            "max_parallel": plan.max_parallel if plan else 1,
            "started_at": at,
            "finished_at": None,
            "cancelled": False,
        },
        "runs": runs,
        "summary": {},
    }
    summarise(raw, at=at)
    return raw


def _new_run(run_id: str, status: str) -> Raw:
    return {
        "run_id": run_id,
        "status": status,
        "request_overrides": {},
        "result_ref": None,
        "primary_metric": None,
    }


def fault_of(raw: Raw) -> str | None:
    """Why a decoded file is no group that we can keep up to date."""
    runs = raw.get("runs")
    if raw.get("kind") != "run_group":
        return "it is no run_group"
    if not isinstance(runs, list) or not all(
        isinstance(run, dict) and isinstance(run.get("run_id"), str) for run in runs
    ):
        return "its runs are no list of objects with a run_id"
    return None


def is_paused(raw: Raw | None) -> bool:
    """spec: Group Pause Field."""
    return raw is not None and raw.get("paused") is True


def places_of(raw: Raw) -> dict[str, int]:
    """Where each run stands in `runs`."""
    return {run["run_id"]: place for place, run in enumerate(raw["runs"])}


def put_job(raw: Raw, places: dict[str, int], job: Job) -> Raw:
    """Let the group say what the queue says of a run; the entry, for what only its result knows."""
    if job.run_id not in places:
        places[job.run_id] = len(raw["runs"])
        raw["runs"].append(_new_run(job.run_id, "pending"))
    run: Raw = raw["runs"][places[job.run_id]]
    run["status"] = str(job.state)
    if job.state not in ENDED:
        run["result_ref"] = None
        run["primary_metric"] = None
    return run


def put_result(run: Raw, result: Raw | None) -> None:
    """Refer to the result of an ended run, and take over its primary metric."""
    run["result_ref"] = f".ml/runs/{run['run_id']}/result.json" if result is not None else None
    run["primary_metric"] = primary_metric(result)


def summarise(raw: Raw, *, at: str) -> None:
    """Bring summary, status and end up to date with the runs."""
    runs = raw["runs"]
    # Ten thousand runs, five times a second: what loops over them is as plain as can be.
    told = Counter([run.get("status") for run in runs])
    counts = {str(state): told[state] for state in ENDED}
    best = _best(runs)
    raw["summary"] = _as_dict(raw.get("summary")) | {
        "total": len(runs),
        "succeeded": counts["succeeded"],
        "failed": counts["failed"],
        "canceled": counts["canceled"],
        "best_run_id": best["run_id"] if best else None,
        "best_primary_metric": best["primary_metric"] if best else None,
    }
    raw["status"] = _status(len(runs) - sum(counts.values()), counts)
    execution = _as_dict(raw.get("execution"))
    over = raw["status"] != "running"
    if over != bool(execution.get("finished_at")):
        execution["finished_at"] = at if over else None
    if raw["status"] == "canceled":
        execution["cancelled"] = True
    raw["execution"] = execution


def _status(still_open: int, counts: Mapping[str, int]) -> str:
    if still_open:
        return "running"
    if counts["canceled"]:
        return "canceled"
    return "failed" if counts["failed"] else "completed"


def _best(runs: list[Raw]) -> Raw | None:
    """The run with the highest primary metric; the lowest where it is a loss."""
    best: Raw | None = None
    best_value = -math.inf
    for run in runs:
        metric = run.get("primary_metric")
        if (
            run.get("status") != JobState.SUCCEEDED
            or not isinstance(metric, dict)
            or not is_number(metric.get("value"))
        ):
            continue
        value = -metric["value"] if _is_loss(metric.get("name")) else metric["value"]
        if value > best_value:
            best, best_value = run, value
    return best


def _is_loss(name: object) -> bool:
    return isinstance(name, str) and (name == "loss" or name.endswith("_loss"))


def primary_metric(result: Raw | None) -> Raw | None:
    """Name and value of what a result is judged by; None where it has no metrics."""
    summary = _as_dict(result.get("summary")) if result else {}
    named = _as_dict(summary.get("primary_metric"))
    if isinstance(named.get("name"), str) and is_number(named.get("value")):
        return {"name": named["name"], "value": named["value"]}
    metrics = {name: value for name, value in _as_dict(summary.get("metrics")).items() if is_number(value)}
    name = next((name for name in (*_PRIMARY_METRICS, *sorted(metrics)) if name in metrics), None)
    return None if name is None else {"name": name, "value": metrics[name]}


def is_number(value: object) -> bool:
    """A number that JSON can hold and that can be compared."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
