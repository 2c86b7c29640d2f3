"""What may be done from afar, on real systems: each action does what its sentence says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import busy_yard
from queueyard.kernel.errors import QueueyardError, UsageFault
from queueyard.kernel.events import System
from queueyard.panqueue import SyncQueueClient
from queueyard.queen import Queen
from queueyard.yard.actions import Noun, Verb, act
from queueyard.yard.details import jjq, ops, panqueue, queen, runforge
from queueyard.yard.details.parts import Wanted
from queueyard.yard.places import Place
from servers import fresh_id, shared_server

if TYPE_CHECKING:
    from pathlib import Path

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)
ALL = Wanted(limit=1_000)


@pytest.fixture
def lab(tmp_path: Path) -> Place:
    return busy_yard.make_runforge(tmp_path / "lab")


def test_failed_runs_of_a_group_wait_again(lab: Place) -> None:
    before = runforge.look(lab.at, ALL)
    failed = [row for row in before.failed.rows if row.group == "deep"]

    said = act(lab, Verb.RETRY, Noun.GROUP, "deep")

    after = runforge.look(lab.at, ALL)
    assert said == f"{len(failed)} runs of deep wait again."
    assert after.queued.total == before.queued.total + len(failed)
    assert not [row for row in after.failed.rows if row.group == "deep"]


def test_a_group_is_paused_resumed_and_canceled(lab: Place) -> None:
    def state() -> tuple[str, int]:
        (row,) = [row for row in runforge.look(lab.at, ALL).groups.rows if row.group == "wide"]
        return row.state, row.queued

    _, queued = state()
    assert act(lab, Verb.PAUSE, Noun.GROUP, "wide") == "Group wide is paused."
    assert state() == ("paused", queued)
    assert act(lab, Verb.PAUSE, Noun.GROUP, "wide") == "Group wide was paused already."
    assert act(lab, Verb.RESUME, Noun.GROUP, "wide") == "Group wide goes on."
    assert state() == ("open", queued)
    assert act(lab, Verb.CANCEL, Noun.GROUP, "wide") == f"{queued} runs of wide are canceled."
    assert state() == ("open", 0)


def test_all_failed_jobs_of_a_queue_wait_again() -> None:
    queue = fresh_id()
    place = busy_yard.make_panqueue(shared_server().url, queue, jobs=3, failing=5)

    said = act(place, Verb.RETRY, Noun.QUEUE, queue)

    assert said == f"5 jobs of {queue} wait again."
    with SyncQueueClient(shared_server().url) as client:
        assert (client.queue(queue).counts().waiting, client.queue(queue).counts().failed) == (8, 0)


def test_a_job_is_removed() -> None:
    queue = fresh_id()
    place = busy_yard.make_panqueue(shared_server().url, queue, jobs=1, failing=0)
    (row,) = [row for row in panqueue.look(shared_server().url, ALL).waiting.rows if row.queue == queue]

    assert act(place, Verb.CANCEL, Noun.JOB, queue, row.id) == f"Job {row.id} of {queue} is removed."
    with SyncQueueClient(shared_server().url) as client:
        assert client.queue(queue).counts().waiting == 0


def test_an_item_of_the_merge_queue_is_deleted(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JJ_CONFIG", str(repository.home / "jj.toml"))
    repository.push("one more")
    place = Place(system=System.JJQ, at=str(repository.root))
    (row,) = jjq.look(place.at, ALL).queue.rows

    assert act(place, Verb.CANCEL, Noun.ITEM, str(row.id)) == f"Item {row.id} is deleted."
    assert jjq.look(place.at, ALL).queue.total == 0


def test_dead_letters_are_queued_again_or_dropped_and_a_request_is_given_up(tmp_path: Path) -> None:
    place = busy_yard.make_ops(tmp_path)
    before = ops.look_at_home(place.at, ALL)
    again, gone = before.dead.rows
    (request,) = before.requests.rows

    assert "is queued again" in act(place, Verb.RETRY, Noun.LETTER, again.id)
    assert "is dropped" in act(place, Verb.CANCEL, Noun.LETTER, gone.id)
    assert act(place, Verb.CANCEL, Noun.REQUEST, request.request) == f"Request {request.request} is dropped."

    after = ops.look_at_home(place.at, ALL)
    assert after.dead.total == 0
    assert [row.ops_left for row in after.requests.rows] == [1]


def test_an_issue_and_files_are_given_back(tmp_path: Path) -> None:
    place = busy_yard.make_queen(tmp_path / "repo")

    assert act(place, Verb.CANCEL, Noun.ASSIGNMENT, "qy-1") == "qy-1 is released."
    assert act(place, Verb.CANCEL, Noun.RESERVATION, "qr-0") == "src/ui/** is free."

    found = queen.look(place.at, ALL)
    assert {row.issue: row.state for row in found.assignments.rows}["qy-1"] == "released"
    assert "src/ui/**" not in {row.pattern for row in found.reservations.rows}
    with Queen.open(tmp_path / "repo", agent="dora", environment={}) as dora:
        assert [verdict.allowed for verdict in dora.check("src/ui/button.tsx")] == [True]


@pytest.mark.parametrize(
    ("verb", "noun", "target"),
    [
        (Verb.RETRY, Noun.GROUP, ["no-such-group"]),
        (Verb.RETRY, Noun.GROUP, ["../../etc"]),
        (Verb.PAUSE, Noun.GROUP, [""]),
    ],
)
def test_what_is_not_there_is_refused(verb: Verb, noun: Noun, target: list[str], lab: Place) -> None:
    before = runforge.look(lab.at, ALL)

    with pytest.raises(QueueyardError):
        act(lab, verb, noun, *target)

    assert runforge.look(lab.at, ALL) == before


def test_what_a_system_cannot_do_is_refused(lab: Place) -> None:
    with pytest.raises(UsageFault, match="runforge cannot pause a job"):
        act(lab, Verb.PAUSE, Noun.JOB, "a", "b")
