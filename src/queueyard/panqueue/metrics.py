"""The state of queues as Prometheus text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.panqueue.records import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from queueyard.panqueue.records import Counts

#: name, help, and how a queue tells it; None leaves the queue out
_GAUGES = (
    ("panqueue_paused", "Whether the queue is paused.", lambda one: int(one.paused)),
    ("panqueue_limit", "How many jobs may be active over all workers.", lambda one: one.limit),
    ("panqueue_keys", "Concurrency keys with waiting jobs.", lambda one: one.keys if one.key_concurrency else None),
    ("panqueue_overdue", "Active jobs whose lease ran out.", lambda one: one.overdue),
    (
        "panqueue_oldest_waiting_seconds",
        "How long the next waiting job has waited.",
        lambda one: None if one.oldest_ms is None else one.oldest_ms / 1_000,
    ),
    ("panqueue_events", "Entries in the event stream.", lambda one: one.events if one.events_kept else None),
)


def exposition(queues: Iterable[Counts]) -> str:
    """One sample per line, grouped by metric, each metric with its help and type."""
    return "".join(f"{line}\n" for line in _lines(list(queues)))


def _lines(queues: list[Counts]) -> Iterator[str]:
    yield "# HELP panqueue_jobs Jobs of a queue by state."
    yield "# TYPE panqueue_jobs gauge"
    for one in queues:
        for state in JobState:
            yield f'panqueue_jobs{{queue="{_escaped(one.queue)}",state="{state}"}} {getattr(one, state)}'
    for name, text, value_of in _GAUGES:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} gauge"
        for one in queues:
            value = value_of(one)
            if value is not None:
                yield f'{name}{{queue="{_escaped(one.queue)}"}} {value}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
