"""The RF tokens: lines that RunForge Desktop parses, word for word. Pure."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    STARTING = "STARTING"
    LOADING_DATASET = "LOADING_DATASET"
    TRAINING = "TRAINING"
    EVALUATING = "EVALUATING"
    WRITING_ARTIFACTS = "WRITING_ARTIFACTS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


def stage(name: Stage) -> str:
    return f"[RF:STAGE={name}]"


def epoch(number: int, total: int) -> str:
    return f"[RF:EPOCH={number}/{total}]"


def device(kind: str, gpu_reason: str | None) -> str:
    return f"[RF:DEVICE={kind.upper()}{f' gpu_reason={gpu_reason}' if gpu_reason else ''}]"


def group_start(group_id: str, runs: int) -> str:
    return f"[RF:GROUP=START {group_id} runs={runs}]"


def group_run(run_id: str, number: int, total: int) -> str:
    return f"[RF:GROUP=RUN {run_id} {number}/{total}]"


def group_run_done(run_id: str, status: str) -> str:
    return f"[RF:GROUP=RUN_DONE {run_id} status={status}]"


def group_complete(group_id: str, *, succeeded: int, failed: int, canceled: int) -> str:
    return f"[RF:GROUP=COMPLETE {group_id} succeeded={succeeded} failed={failed} canceled={canceled}]"


def group_canceled(group_id: str) -> str:
    return f"[RF:GROUP=CANCELED {group_id}]"


def group_enqueued(group_id: str, runs: int) -> str:
    return f"[RF:GROUP=ENQUEUED {group_id} runs={runs}]"


def group_paused(group_id: str) -> str:
    return f"[RF:GROUP=PAUSED {group_id}]"


def group_resumed(group_id: str) -> str:
    return f"[RF:GROUP=RESUMED {group_id}]"


def daemon_started(pid: int, max_parallel: int) -> str:
    return f"[RF:DAEMON=STARTED pid={pid} max_parallel={max_parallel}]"


def daemon_stopped(pid: int) -> str:
    return f"[RF:DAEMON=STOPPED pid={pid}]"


def job_started(job_id: str, run_id: str) -> str:
    return f"[RF:QUEUE=JOB_STARTED {job_id} run_id={run_id}]"


def job_done(job_id: str, run_id: str, status: str) -> str:
    return f"[RF:QUEUE=JOB_DONE {job_id} run_id={run_id} status={status}]"


def is_token(line: str) -> bool:
    return line.startswith("[RF:") and line.rstrip().endswith("]")
