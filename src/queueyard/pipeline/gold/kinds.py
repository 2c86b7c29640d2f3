"""Counting events by what happened. Pure; knows the vocabulary and nothing of any table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: what throughput and the summary count, in the order of their columns
FLOW = (Kind.QUEUED, Kind.STARTED, Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.CANCELED)
#: one op of a batch is `<request>:<batch>:<op>`, the batch itself `<request>:<batch>`
_SINGLE_OP = "^[^:]+:[^:]+:."


def is_kind(*kinds: Kind) -> Column:
    return F.col("kind").isin(*[kind.value for kind in kinds])


def is_of(system: System) -> Column:
    return F.col("system") == system.value


def counts(*kinds: Kind) -> list[Column]:
    """One column per kind, named after it: how many events of that kind."""
    return [F.count_if(is_kind(kind)).alias(kind.value) for kind in kinds]


def is_single_op() -> Column:
    """Whether the event is about one op of an ops batch, which the server tells beside the batch itself."""
    return is_of(System.OPS) & F.col("item").rlike(_SINGLE_OP)


def whole_items(events: DataFrame) -> DataFrame:
    """Without the single ops of ops: they are parts of items that are told themselves, and would count twice."""
    return events.where(~is_single_op())


def number(path: str) -> Column:
    """A whole number in the event's own object; null if it is not there or is none."""
    return F.get_json_object("data", f"$.{path}").try_cast("long")


def share(part: Column, whole: Column) -> Column:
    """0 to 1; null where there is nothing to have a share of."""
    return F.when(whole > 0, part.cast("double") / whole.cast("double"))
