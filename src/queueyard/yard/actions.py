"""What a person may do to a place from afar: retry, pause, resume, cancel. Each through that system's own service.

An action names what it is about in the words of that system: a job is its queue and its id. Nothing here decides who
may do it.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queueyard.kernel.errors import UsageFault
from queueyard.kernel.events import System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.ops.service import Ops
    from queueyard.panqueue.sync import SyncQueueHandle
    from queueyard.queen.service import Queen
    from queueyard.runforge.service import RunForge
    from queueyard.yard.places import Place

#: who acts, in the events and records of the systems; queen knows this name without a droid of it
ACTOR = "human"


class Verb(StrEnum):
    RETRY = "retry"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


class Noun(StrEnum):
    """What an action is about."""

    QUEUE = "queue"
    JOB = "job"
    GROUP = "group"
    ITEM = "item"
    REQUEST = "request"
    LETTER = "letter"
    ASSIGNMENT = "assignment"
    RESERVATION = "reservation"


def act(place: Place, verb: Verb, noun: Noun, *target: str) -> str:
    """Do it, and say in one sentence what was done. UsageFault for what cannot be done there, errors of the system."""
    found = _ACTIONS.get((place.system, verb, noun))
    if found is None or len(target) != _WORDS.get(noun, 1):
        raise UsageFault(f"{place.system} cannot {verb} a {noun}", hint=f"See what it can: queueyard {place.system} -h")
    return found(place.at, *target)


# --- panqueue --------------------------------------------------------------------------------------------------------


@contextmanager
def _queue(at: str, queue: str) -> Iterator[SyncQueueHandle[Any, Any]]:
    from queueyard.panqueue.sync import SyncQueueClient  # noqa: PLC0415

    with SyncQueueClient(at, name=ACTOR) as client:
        yield client.queue(queue)


def _retry_job(at: str, queue: str, job: str) -> str:
    with _queue(at, queue) as handle:
        handle.retry(job)
    return f"Job {job} of {queue} waits again."


def _retry_queue(at: str, queue: str) -> str:
    with _queue(at, queue) as handle:
        return f"{_jobs(handle.retry_all())} of {queue} wait again."


def _remove_job(at: str, queue: str, job: str) -> str:
    with _queue(at, queue) as handle:
        handle.remove(job)
    return f"Job {job} of {queue} is removed."


def _pause_queue(at: str, queue: str) -> str:
    with _queue(at, queue) as handle:
        return f"Queue {queue} is paused." if handle.pause() else f"Queue {queue} was paused already."


def _resume_queue(at: str, queue: str) -> str:
    with _queue(at, queue) as handle:
        return f"Queue {queue} goes on." if handle.resume() else f"Queue {queue} was not paused."


# --- runforge --------------------------------------------------------------------------------------------------------


def _forge(at: str) -> RunForge:
    from queueyard.runforge.service import RunForge  # noqa: PLC0415

    return RunForge.open(Path(at), environment={}, actor=ACTOR)


def _retry_group(at: str, group: str) -> str:
    return f"{_runs(len(_forge(at).retry_failed(group)))} of {group} wait again."


def _pause_group(at: str, group: str) -> str:
    return f"Group {group} is paused." if _forge(at).pause_group(group) else f"Group {group} was paused already."


def _resume_group(at: str, group: str) -> str:
    return f"Group {group} goes on." if _forge(at).resume_group(group) else f"Group {group} was not paused."


def _cancel_group(at: str, group: str) -> str:
    return f"{_runs(len(_forge(at).cancel_group(group)))} of {group} are canceled."


# --- jjq -------------------------------------------------------------------------------------------------------------


def _retry_item(at: str, item: str) -> str:
    from queueyard.jjq.service import Jjq  # noqa: PLC0415

    return f"Item {item} is queued again as {Jjq.open(Path(at)).retry(item).id}."


def _delete_item(at: str, item: str) -> str:
    from queueyard.jjq.service import Jjq  # noqa: PLC0415

    Jjq.open(Path(at)).delete(item)
    return f"Item {item} is deleted."


# --- ops -------------------------------------------------------------------------------------------------------------


def _scopes(at: str) -> Iterator[Ops]:
    from queueyard.ops.home import known_scopes  # noqa: PLC0415
    from queueyard.ops.service import Ops  # noqa: PLC0415

    for _, scope in known_scopes(Path(at)):
        workspace = Path(scope.workspace) if scope.workspace else None
        yield Ops.open(workspace, environment={"JOLLI_HOME": at}, server=scope.server, space=scope.space)


def _retry_letter(at: str, wanted: str) -> str:
    for ops in _scopes(at):
        letters = [letter for letter in ops.dead_letters() if letter.id == wanted]
        if letters:
            ops.retry_dead(letters)
            return f"{letters[0].op.server_path} is queued again; to send it: jolli-ops resume"
    raise UsageFault(f"no dead letter {wanted}", hint="List them: jolli-ops dead list")


def _drop_letter(at: str, wanted: str) -> str:
    for ops in _scopes(at):
        letters = [letter for letter in ops.dead_letters() if letter.id == wanted]
        if letters:
            ops.drop_dead(letters)
            return f"The dead letter of {letters[0].op.server_path} is dropped."
    raise UsageFault(f"no dead letter {wanted}", hint="List them: jolli-ops dead list")


def _drop_request(at: str, wanted: str) -> str:
    for ops in _scopes(at):
        if any(one.request_id == wanted for one in ops.queue.requests()):
            ops.drop(wanted)
            return f"Request {wanted} is dropped."
    raise UsageFault(f"no request {wanted}", hint="List what is queued: jolli-ops pending list")


# --- queen -----------------------------------------------------------------------------------------------------------


def _queen(at: str) -> Queen:
    from queueyard.queen.service import Queen  # noqa: PLC0415

    root = Path(at)
    return Queen.open(root, agent=ACTOR, beads=root if root.name == ".beads" else root / ".beads", environment={})


def _release_assignment(at: str, issue: str) -> str:
    with _queen(at) as queen:
        queen.release(issue, reason="released on the dashboard", force=True)
    return f"{issue} is released."


def _release_reservation(at: str, identifier: str) -> str:
    with _queen(at) as queen:
        (released,) = queen.unreserve(identifier, force=True)
    return f"{released.pattern} is free."


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


#: a job is its queue and its id; everything else is one word
_WORDS = {Noun.JOB: 2}

_ACTIONS: dict[tuple[System, Verb, Noun], Callable[..., str]] = {
    (System.PANQUEUE, Verb.RETRY, Noun.JOB): _retry_job,
    (System.PANQUEUE, Verb.CANCEL, Noun.JOB): _remove_job,
    (System.PANQUEUE, Verb.RETRY, Noun.QUEUE): _retry_queue,
    (System.PANQUEUE, Verb.PAUSE, Noun.QUEUE): _pause_queue,
    (System.PANQUEUE, Verb.RESUME, Noun.QUEUE): _resume_queue,
    (System.RUNFORGE, Verb.RETRY, Noun.GROUP): _retry_group,
    (System.RUNFORGE, Verb.PAUSE, Noun.GROUP): _pause_group,
    (System.RUNFORGE, Verb.RESUME, Noun.GROUP): _resume_group,
    (System.RUNFORGE, Verb.CANCEL, Noun.GROUP): _cancel_group,
    (System.JJQ, Verb.RETRY, Noun.ITEM): _retry_item,
    (System.JJQ, Verb.CANCEL, Noun.ITEM): _delete_item,
    (System.OPS, Verb.RETRY, Noun.LETTER): _retry_letter,
    (System.OPS, Verb.CANCEL, Noun.LETTER): _drop_letter,
    (System.OPS, Verb.CANCEL, Noun.REQUEST): _drop_request,
    (System.QUEEN, Verb.CANCEL, Noun.ASSIGNMENT): _release_assignment,
    (System.QUEEN, Verb.CANCEL, Noun.RESERVATION): _release_reservation,
}
