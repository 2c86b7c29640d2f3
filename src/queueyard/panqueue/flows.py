"""Flows: jobs that wait for other jobs, in the same queue or in others.

    report = FlowJob("reports", {"month": 7}, children=[FlowJob("fetch", {"site": one}) for one in sites])
    job = await client.add_flow(report)             # runs when all children have ended
    results = await job.children()                  # in the handler of the report

A flow is accepted with one call, which stores the root together with the plan of everything below it. Planting the
children, and telling a parent how a child ended, go from queue to queue and so are several calls; each of them may be
made again by anybody without doing harm, and the workers of the queues do so for whoever died half-way.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.panqueue.errors import BadFlow
from queueyard.panqueue.placing import Placing
from queueyard.panqueue.queues import JobChanges, Queue, checked_key, new_job_id, with_options
from queueyard.panqueue.records import JobOptions, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

DEEPEST_FLOW = 50
_KID = b"kid:"


class OnFailure(StrEnum):
    """What the failure of a job means for the one that waits for it."""

    #: it fails, too
    FAIL = "fail"
    #: it starts at once, without waiting for the others
    CONTINUE = "continue"
    #: it goes on waiting for the others
    IGNORE = "ignore"


class FlowJob:
    """One job of a flow, with those that must end before it starts. Describes; adds nothing by itself."""

    def __init__(
        self,
        queue: Queue[Any, Any] | str,
        payload: Any,
        *,
        name: str | None = None,
        children: Sequence[FlowJob] = (),
        on_failure: OnFailure | str = OnFailure.FAIL,
        key: str | None = None,
        **options: Unpack[JobChanges],
    ) -> None:
        """`name`: how its parent finds its result. `on_failure`: what its failure means for the parent.

        NotSerializable, PayloadTooLarge, BadQueue.
        """
        self.queue: Queue[Any, Any] = Queue(queue) if isinstance(queue, str) else queue
        self.payload = self.queue.payloads.encode(payload).decode()
        self.name = name
        self.children: list[FlowJob] = list(children)
        self.on_failure = OnFailure(on_failure)
        self.key = checked_key(
            self.queue.id, key, keyed=self.queue.mode in {Mode.KEYED, Mode.DYNAMIC} or key is not None
        )
        self.options = with_options(self.queue.options, **options)
        placing = self.options.placing or Placing()
        if placing != Placing(priority=placing.priority):
            raise BadFlow(
                f"a job of queue {self.queue.id} in a flow waits for its children and for nothing else",
                hint="Leave out delays, deduplication and expiry.",
            )

    def __repr__(self) -> str:
        return f"<FlowJob {self.name or self.queue.id}, {len(self.children)} children>"


def chain(*jobs: FlowJob) -> FlowJob:
    """One after the other: each waits for the one before it, and finds its result under that one's name."""
    if not jobs:
        raise BadFlow("a chain needs a job", hint="chain(first, second, third)")
    for before, after in pairwise(jobs):
        after.children.append(before)
    return jobs[-1]


def group(jobs: Sequence[FlowJob], then: FlowJob) -> FlowJob:
    """Any number at once, and one that waits for all of them."""
    then.children.extend(jobs)
    return then


class Parent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who waits for a job; the field `parent` of its hash."""

    queue: str
    id: str
    #: under which the parent finds the result
    name: str
    on_failure: OnFailure = OnFailure.FAIL


class Planned(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job of a flow that has not been added yet; the field `plan` of its parent holds a list of them."""

    queue: str
    id: str
    name: str
    payload: str
    options: JobOptions
    on_failure: OnFailure = OnFailure.FAIL
    key: str | None = None
    children: list[Planned] = []

    def added(self, parent: Parent | None) -> JobOptions:
        """The options with which it is added."""
        fields: list[tuple[str, str]] = []
        if parent is not None:
            fields.append(("parent", msgspec.json.encode(parent).decode()))
        if self.children:
            plan = msgspec.json.encode(self.children).decode()
            fields += [("plan", plan), ("pending", str(len(self.children)))]
        priority = self.options.placing.priority if self.options.placing else 0
        placing = Placing(priority=priority, fields=tuple(fields)) if fields or priority else None
        return msgspec.structs.replace(self.options, placing=placing)


class _Named(msgspec.Struct):
    """What is needed of a plan to find results."""

    name: str


class ChildResult(msgspec.Struct, frozen=True):
    """How a child ended, as its parent sees it."""

    ok: bool
    #: what its handler returned; None if it failed or returned nothing
    result: Any = None
    #: why it failed
    reason: str = ""


def planned(root: FlowJob) -> Planned:
    """The whole flow with its ids. BadFlow names the path of a job that waits for itself, or that stands twice."""
    seen: dict[int, str] = {}

    def visit(job: FlowJob, job_id: str, name: str, above: tuple[tuple[int, str], ...]) -> Planned:
        path = " > ".join([*(one for _, one in above), name])
        if any(one == id(job) for one, _ in above):
            raise BadFlow(f"the flow goes round in a circle: {path}", hint="A job cannot wait for itself.")
        if id(job) in seen:
            raise BadFlow(f"one job stands at two places: {seen[id(job)]} and {path}", hint="Make a FlowJob for each.")
        if len(above) >= DEEPEST_FLOW:
            raise BadFlow(f"the flow is deeper than {DEEPEST_FLOW}: {path[:200]}", hint="Split it into several flows.")
        below = (*above, (id(job), name))
        children = [
            visit(child, f"{job_id}.{place}", child.name or str(place), below)
            for place, child in enumerate(job.children)
        ]
        seen[id(job)] = path
        _check_names(children, path)
        return Planned(job.queue.id, job_id, name, job.payload, job.options, job.on_failure, job.key, children)

    return visit(root, new_job_id(), root.name or root.queue.id, ())


def _check_names(children: list[Planned], path: str) -> None:
    names = [child.name for child in children]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadFlow(f"{path} has two children called {twice.pop()}", hint="Give each of them a name of its own.")


def walk(job: Planned) -> Iterator[Planned]:
    """The job and everything below it."""
    yield job
    for child in job.children:
        yield from walk(child)


def read_children(flat: Sequence[bytes]) -> dict[str, ChildResult]:
    """How the children of a job ended, in the order of its plan, from its hash as HGETALL gives it."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    plan = msgspec.json.decode(fields.get(b"plan", b"[]"), type=list[_Named])
    told = ((child.name, fields.get(_KID + child.name.encode())) for child in plan)
    return {name: _child(value) for name, value in told if value is not None}


def _child(value: bytes) -> ChildResult:
    ok, text = value[:1] == b"+", value[1:]
    if not ok:
        return ChildResult(ok=False, reason=text.decode("utf-8", "replace"))
    return ChildResult(ok=True, result=msgspec.json.decode(text) if text else None)
