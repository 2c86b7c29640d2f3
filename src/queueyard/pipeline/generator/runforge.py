"""A workspace with an execution queue: groups of very different size, retries, lost daemons, canceled and pruned runs.

runforge/.runforge/queue/events.jsonl         one line per change of a job
runforge/.runforge/queue/queue.json           the newest jobs, as they stand at the end
runforge/.runforge/groups/<group>/group.json  their runs
runforge/.ml/runs/<run>/result.json           the newest results
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.events import Kind
from queueyard.pipeline.generator.chance import (
    HOUR,
    MINUTE,
    SECOND,
    Agenda,
    Crew,
    Skewed,
    arrivals,
    clock_error,
    fault,
    local_text,
    mean_run_s,
    moment,
    per_second,
    run_time,
)
from queueyard.pipeline.generator.writing import OF_A_JOURNAL, Budget, Stream, StreamCount
from queueyard.runforge.events import group_event, job_events
from queueyard.runforge.records import (
    ENDED,
    Added,
    Ended,
    Job,
    JobState,
    Pruned,
    QueueFile,
    Returned,
    Started,
    encode_pretty,
    encode_rows,
)

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from queueyard.runforge.records import Entry

STREAM = "runforge.events"
SOURCE = "/srv/generated/runforge"
_LINES_PER_JOB = 3.6
_ACTORS = ("daemon-1", "daemon-2", "daemon-3", "daemon-4", "daemon-5", "daemon-6")
_GROUPS = Skewed([f"grp_{name}" for name in ("sweep", "night", "ablation", "paper", "tuning", "data", "demo", "tiny")])
_UNGROUPED = 0.1
_MOST_ATTEMPTS = 3
#: how many of the newest jobs stand in queue.json, and how many of the newest results are kept
_JOBS_KEPT, _RESULTS_KEPT = 400, 40
_NO_MARKS = str.maketrans("", "", "-T:")
_LOST = "queued again: the daemon died while it ran, and nobody saw how it ended"


def write(folder: Path, lines: int, random: Random) -> list[StreamCount]:
    root = folder / "runforge"
    budget = Budget(lines)
    path = root / ".runforge" / "queue" / "events.jsonl"
    stream = Stream(STREAM, path, random=random, budget=budget, flaws=OF_A_JOURNAL)
    rate = per_second(lines / _LINES_PER_JOB)
    queue = _Execution(stream, random, rate)
    for at in arrivals(random, rate):
        queue.agenda.run_until(at)
        if budget.left <= 0:
            break
        queue.enqueue(at)
    count = stream.close()
    _write_snapshots(root, list(queue.jobs.values()), random)
    return [count]


class _Execution:
    def __init__(self, stream: Stream, random: Random, rate: float) -> None:
        self.agenda = Agenda()
        #: the newest ones
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self._stream = stream
        self._random = random
        self._crew = Crew(_ACTORS)
        self._mean_s = mean_run_s(rate, len(_ACTORS))
        self._encode = msgspec.json.Encoder().encode
        self._number = 0

    def enqueue(self, at: int) -> None:
        random = self._random
        self._number += 1
        error = clock_error(random, self._number)
        job = Job(
            job_id=_job_id(at, self._number),
            run_id=f"run_{self._number:07d}",
            group_id=None if random.random() < _UNGROUPED else _GROUPS.pick(random),
            priority=random.choice((0, 0, 0, 1, 5)),
            requires_gpu=random.random() < 0.3,
            created_at=local_text(at + error),
        )
        self._tell(at, Added(jobs=[job]), None, job, "client")
        if random.random() < 0.02:
            self._finish(at + 5 * SECOND, error, job, JobState.CANCELED, "client", "canceled by user")
        else:
            self._run(at, error, job)
        if random.random() < 0.002:
            self._pause(at, job.group_id)

    def _run(self, ready: int, error: int, job: Job) -> None:
        """Decide about one attempt, and about those that follow from it."""
        random = self._random
        start, end, actor = self._crew.take(ready, run_time(random, self._mean_s))
        started_at = local_text(start + error)
        running = msgspec.structs.replace(job, state=JobState.RUNNING, started_at=started_at, error=None)
        began = Started(job_id=job.job_id, attempt=job.attempt, at=started_at)
        self.agenda.add(start, self._tell, began, job, running, actor)
        dice = random.random()
        if dice < 0.02:
            self._give_back(end, error, running, actor, _LOST, lost=True)
        elif dice < 0.03:
            self._give_back(end, error, running, actor, "the daemon stops", lost=False)
        elif dice < 0.10 and job.attempt < _MOST_ATTEMPTS:
            self._give_back(end, error, running, actor, fault(random), lost=False, next_attempt=job.attempt + 1)
        elif dice < 0.16:
            self._finish(end, error, running, JobState.FAILED, actor, fault(random))
        elif dice < 0.18:
            self._finish(end, error, running, JobState.CANCELED, actor, "canceled by user")
        else:
            self._finish(end, error, running, JobState.SUCCEEDED, actor, None)

    def _give_back(
        self, at: int, error: int, job: Job, actor: str, reason: str, *, lost: bool, next_attempt: int | None = None
    ) -> None:
        again = next_attempt or job.attempt
        entry = Returned(
            job_id=job.job_id,
            attempt=job.attempt,
            next_attempt=again,
            at=local_text(at + error),
            reason=reason,
            lost=lost,
        )
        queued = msgspec.structs.replace(job, state=JobState.QUEUED, attempt=again, started_at=None, error=reason)
        self.agenda.add(at, self._tell, entry, job, queued, actor)
        self._run(at + MINUTE, error, queued)

    def _finish(self, at: int, error: int, job: Job, state: JobState, actor: str, why: str | None) -> None:
        finished_at = local_text(at + error)
        entry = Ended(job_id=job.job_id, was=job.state, attempt=job.attempt, state=state, at=finished_at, error=why)
        after = msgspec.structs.replace(job, state=state, finished_at=finished_at, error=why)
        self.agenda.add(at, self._tell, entry, job, after, actor)
        if self._random.random() < 0.1:
            self.agenda.add(at + 2 * HOUR, self._tell, Pruned(job_ids=[job.job_id]), after, None, "client")

    def _pause(self, at: int, group_id: str | None) -> None:
        if group_id is not None:
            self._say(at, group_id, Kind.PAUSED)
            self.agenda.add(at + int(self._random.random() * HOUR), self._say, group_id, Kind.RESUMED)

    # --- steps, each at its time -------------------------------------------------------------------------------------

    def _say(self, at: int, group_id: str, kind: Kind) -> None:
        self._stream.write(self._encode(group_event(group_id, kind, moment(at), source=SOURCE, actor="client")))

    def _tell(self, _at: int, entry: Entry, before: Job | None, after: Job | None, actor: str) -> None:
        changes: Any = [(before, after)]
        is_told = True
        for event in job_events(entry, changes, source=SOURCE, actor=actor):
            is_told &= self._stream.write(self._encode(event))
        # The snapshot never knows more than the journal.
        if is_told:
            self._remember(before, after)

    def _remember(self, before: Job | None, after: Job | None) -> None:
        if after is not None:
            self.jobs[after.job_id] = after
            if len(self.jobs) > _JOBS_KEPT:
                self.jobs.popitem(last=False)
        elif before is not None:
            self.jobs.pop(before.job_id, None)


def _job_id(at: int, number: int) -> str:
    digits = local_text(at)[:19].translate(_NO_MARKS)
    return f"job_{digits[:8]}_{digits[8:]}_{number:04d}"


# --- snapshots -------------------------------------------------------------------------------------------------------


def _write_snapshots(root: Path, jobs: list[Job], random: Random) -> None:
    served = next((job.group_id for job in reversed(jobs) if job.state is JobState.RUNNING), None)
    queue = QueueFile(max_parallel=len(_ACTORS), jobs=jobs, last_served_group=served)
    (root / ".runforge" / "queue" / "queue.json").write_bytes(encode_rows(queue, "jobs"))
    ended = [job for job in jobs if job.state in ENDED and job.started_at][-_RESULTS_KEPT:]
    results = {job.run_id: _result(job, random) for job in ended}
    for run_id, result in results.items():
        _write(root / ".ml" / "runs" / run_id / "result.json", result)
    for group_id in sorted({job.group_id for job in jobs if job.group_id}):
        group = _group(group_id, [job for job in jobs if job.group_id == group_id], results)
        _write(root / ".runforge" / "groups" / group_id / "group.json", group)


def _result(job: Job, random: Random) -> dict[str, Any]:
    accuracy = round(random.betavariate(8, 2), 4)
    good = job.state is JobState.SUCCEEDED
    metric = {"name": "accuracy", "value": accuracy}
    return {
        "version": 1,
        "status": str(job.state),
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "summary": {"metrics": {"accuracy": accuracy}, "primary_metric": metric} if good else None,
        "artifacts": [],
        "error": {"message": job.error, "type": "RunFailed"} if job.error else None,
    }


def _group(group_id: str, jobs: list[Job], results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    states = [job.state for job in jobs]
    return {
        "version": 1,
        "kind": "run_group",
        "group_id": group_id,
        "created_at": jobs[0].created_at,
        "name": group_id,
        "status": "running" if set(states) - ENDED else "completed",
        "runs": [_run(job, results.get(job.run_id)) for job in jobs],
        "summary": {"total": len(jobs)} | {str(state): states.count(state) for state in sorted(ENDED)},
    }


def _run(job: Job, result: dict[str, Any] | None) -> dict[str, Any]:
    summary = (result or {}).get("summary") or {}
    return {
        "run_id": job.run_id,
        "status": str(job.state),
        "request_overrides": {},
        "result_ref": f".ml/runs/{job.run_id}/result.json" if result else None,
        "primary_metric": summary.get("primary_metric"),
    }


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_pretty(document))
