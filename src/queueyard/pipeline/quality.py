"""Looks whether the tables are as they are expected to be, and keeps what is not.

A check covers the batches since the last one. Silver is looked at by the rows that those batches brought or changed,
gold as a whole. All rules of a table are counted in one pass, all tables in one job. A check never changes a table that
it looks at, and never stops a run.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from deltalake import Schema
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from queueyard.pipeline import schemas
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.expectations import RULES, SCHEMA_RULE, TOTALS
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.schemas import ATTEMPT_KEY, ITEM_KEY, RECORD_KEY, VIOLATIONS
from queueyard.pipeline.silver import attempts, files, folding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import StructType

    from queueyard.pipeline.expectations import Rule
    from queueyard.pipeline.tables import Table
    from queueyard.pipeline.warehouse import Warehouse

_GOLD = {metric.spec.name: metric.spec for metric in METRICS}
_FILE_KEY = ("source", "space", "file")
_QUEUE = ("system", "source", "queue")
#: the columns of what breaks a rule
_BROKEN = "table string, rule string, key string, is_whole boolean"
#: what tells one row of a table from the others: the examples of a violation
_KEYS: Mapping[str, tuple[str, ...]] = {
    "silver/events": ("id",),
    "silver/items": ITEM_KEY,
    "silver/attempts": ATTEMPT_KEY,
    "silver/messages": RECORD_KEY,
    "silver/assignments": RECORD_KEY,
    "silver/reservations": RECORD_KEY,
    "silver/file_versions": ("source", "space", "seq"),
    "silver/files": _FILE_KEY,
    "gold/throughput": ("grain", "bucket_at", *_QUEUE),
    "gold/durations": (*_QUEUE, "measure", "scope", "group", "day"),
    "gold/failures": (*_QUEUE, "day", "kind", "reason"),
    "gold/retries": (*_QUEUE, "day"),
    "gold/fairness": ("grain", "bucket_at", *_QUEUE),
    "gold/landing": ("source", "queue", "day"),
    "gold/agents": ("source", "agent"),
    "gold/contention": ("source", "day", "holder", "holder_pattern", "waiter", "waiter_pattern"),
    "gold/sync": ("source", "space", "day"),
    "gold/summary": ("system", "day"),
}


def check(house: Warehouse, batch: int) -> None:
    """Look at everything that came since the last check, up to this batch, and commit what was found."""
    table = house.table(VIOLATIONS)
    last = table.log.batch()
    if last < batch:
        found = (
            violations(house, after=last)
            .withColumn("since", F.lit(last + 1).cast("long"))
            .withColumn("batch", F.lit(batch).cast("long"))
        )
        table.commit(table.write(found), batch=batch)


def violations(house: Warehouse, *, after: int) -> DataFrame:
    """One row per rule that is broken, without the batches of the check; silver by the batches behind `after`."""
    told = [
        broken(look(house, after), _rules_of(name, RULES), key=_KEYS[name], is_whole=False)
        for name, look in _SILVER_LOOKS.items()
        if DeltaLog(f"{house.home}/{name}").batch() > after
    ]
    told += [
        broken(house.table(spec).read(), _rules_of(name, RULES), key=_KEYS[name], is_whole=True)
        for name, spec in _GOLD.items()
    ]
    for name, add_up in _TOTALS.items():
        total = add_up(house)
        told.append(broken(total, _rules_of(name, TOTALS), key=total.columns, is_whole=True))
    return (
        reduce(DataFrame.unionByName, [*told, *_foreign_columns(house)])
        .groupBy("table", "rule", "is_whole")
        # The first and the last in the order of letters: always the same two, however the rows are split.
        .agg(
            F.count(F.lit(1)).alias("violations"),
            F.array_distinct(F.array(F.min("key"), F.max("key"))).alias("examples"),
        )
    )


def broken(rows: DataFrame, rules: Sequence[Rule], *, key: Sequence[str], is_whole: bool) -> DataFrame:
    """(table, rule, key, is_whole), one for each row and each rule that it breaks; one pass, without a shuffle."""
    names = F.array(*[F.when(~F.coalesce(F.expr(rule.holds), F.lit(True)), rule.name) for rule in rules])
    return rows.select(
        F.lit(rules[0].table).alias("table"),
        F.explode(F.array_compact(names)).alias("rule"),
        F.concat_ws(" ", *[F.col(f"`{column}`").cast("string") for column in key]).alias("key"),
        F.lit(is_whole).alias("is_whole"),
    )


def _rules_of(table: str, rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if rule.table == table]


# --- what there is to look at ----------------------------------------------------------------------------------------


def _events(house: Warehouse, after: int) -> DataFrame:
    ingested = house.lines.since(after).groupBy("batch").agg(F.max("ingested_at").alias("ingested_at"))
    return house.events.since(after).join(F.broadcast(ingested), on="batch", how="left")


def _attempts(house: Warehouse, after: int) -> DataFrame:
    known = house.items.since(after).select(*ITEM_KEY, F.lit(True).alias("is_item")).distinct()
    tried = attempts.view(house.attempts.touched(ATTEMPT_KEY, after)).join(known, on=list(ITEM_KEY), how="left")
    return tried.withColumn("is_item", F.coalesce("is_item", F.lit(False)))


def _messages(house: Warehouse, after: int) -> DataFrame:
    known = house.messages.read().select("source", F.col("id").alias("reply_to"), F.lit(True).alias("is_known"))
    is_no_answer = F.coalesce("reply_to", F.lit("")) == ""
    return (
        _records(house.messages, schemas.MESSAGE, after)
        .join(known.distinct(), on=["source", "reply_to"], how="left")
        .withColumn("is_answer_to_known", is_no_answer | F.coalesce("is_known", F.lit(False)))
    )


def _files(house: Warehouse, after: int) -> DataFrame:
    known = (
        house.file_versions.touched(_FILE_KEY, after)
        .select(*_FILE_KEY, "version", "seq", F.lit(True).alias("is_version"))
        .distinct()
    )
    newest = files.merged(house.files.touched(_FILE_KEY, after))
    return newest.join(known, on=[*_FILE_KEY, "version", "seq"], how="left").withColumn(
        "is_version", F.coalesce("is_version", F.lit(False))
    )


def _records(table: Table, schema: StructType, after: int) -> DataFrame:
    return folding.view(table.touched(RECORD_KEY, after), schema)


_SILVER_LOOKS: Mapping[str, Callable[[Warehouse, int], DataFrame]] = {
    "silver/events": _events,
    "silver/items": lambda house, after: house.items.since(after),
    "silver/attempts": _attempts,
    "silver/messages": _messages,
    "silver/assignments": lambda house, after: _records(house.assignments, schemas.ASSIGNMENT, after),
    "silver/reservations": lambda house, after: _records(house.reservations, schemas.RESERVATION, after),
    "silver/file_versions": lambda house, after: house.file_versions.since(after),
    "silver/files": _files,
}


# --- sums of whole tables --------------------------------------------------------------------------------------------

_FLOW = "queued + started + succeeded + failed + conflicted + canceled"


def _events_of_items(house: Warehouse) -> DataFrame:
    counted = F.coalesce(F.sum("events"), F.lit(0)).alias("counted")
    return house.items.read().agg(counted).withColumn("told", F.lit(house.events.log.rows()))


def _flow_by_grain(house: Warehouse) -> DataFrame:
    grains = {"minutes": "minute", "hours": "hour", "days": "day"}
    sums = [F.sum(F.when(F.col("grain") == grain, F.expr(_FLOW))).alias(name) for name, grain in grains.items()]
    return house.table(schemas.THROUGHPUT).read().agg(*sums)


def _flow_of_summary(house: Warehouse) -> DataFrame:
    summarised = house.table(schemas.SUMMARY).read().agg(F.sum(F.expr(_FLOW)).alias("summarised"))
    days = (
        house.table(schemas.THROUGHPUT).read().where(F.col("grain") == "day").agg(F.sum(F.expr(_FLOW)).alias("counted"))
    )
    return summarised.crossJoin(days)


_TOTALS: Mapping[str, Callable[[Warehouse], DataFrame]] = {
    "silver/items": _events_of_items,
    "gold/throughput": _flow_by_grain,
    "gold/summary": _flow_of_summary,
}


def _foreign_columns(house: Warehouse) -> list[DataFrame]:
    """Tables whose log names other columns or types than this version writes; the examples are those columns."""
    found = []
    for spec in (*schemas.SILVER, *_GOLD.values()):
        there = set(house.table(spec).log.columns())
        wanted = Schema.from_arrow(to_arrow_schema(spec.schema, timezone="UTC"))
        differing = there ^ {(field.name, str(field.type)) for field in wanted.fields} if there else set()
        found += [(spec.name, SCHEMA_RULE, name, True) for name in {name for name, _ in differing}]
    return [house.spark.createDataFrame(found, _BROKEN)] if found else []
