"""What runforge may refuse. The exit codes are the contract's and the public tool's.

QueueyardError
├── NoWorkspace          exit 1   the workspace is not there (3 where the public tool says so)
├── MissingFiles         exit 3   a plan, a run folder or its request.json is not there
├── InvalidRequest       exit 2   request.json makes no sense
├── InvalidPlan          exit 6   the sweep plan makes no sense; every fault is named
├── InvalidValue         exit 1   an id, a number or a time that cannot be
├── UnknownRun           exit 1   no such run
├── UnknownJob           exit 1   no such job
├── UnknownGroup         exit 1   no such group
├── AlreadyQueued        exit 1   the run is queued or running already
├── DaemonRunning        exit 1   another daemon serves the workspace
├── RunFailed            exit 1   the run, or one of the runs that were waited for, failed
├── Canceled             exit 5   the run, the sweep or the group was canceled
└── TimedOut             exit 124 what was waited for did not end in time
"""

from __future__ import annotations

from queueyard.kernel.errors import QueueyardError


class NoWorkspace(QueueyardError):
    pass


class MissingFiles(QueueyardError):
    exit_code = 3


class InvalidRequest(QueueyardError):
    exit_code = 2


class InvalidPlan(QueueyardError):
    """The message lists every fault; `faults` holds them one by one, each starting with the field."""

    exit_code = 6

    def __init__(self, faults: list[str], *, hint: str | None = None) -> None:
        super().__init__("the sweep plan is invalid:\n" + "\n".join(f"  - {one}" for one in faults), hint=hint)
        self.faults = faults

    def facts(self) -> dict[str, list[str]]:
        return {"faults": self.faults}


class InvalidValue(QueueyardError):
    pass


class UnknownRun(QueueyardError):
    pass


class UnknownJob(QueueyardError):
    pass


class UnknownGroup(QueueyardError):
    pass


class AlreadyQueued(QueueyardError):
    pass


class DaemonRunning(QueueyardError):
    pass


class RunFailed(QueueyardError):
    pass


class Canceled(QueueyardError):
    exit_code = 5


class TimedOut(QueueyardError):
    exit_code = 124
