"""What goes wrong and why, with the reasons made alike. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind
from queueyard.pipeline.gold.kinds import is_kind
from queueyard.pipeline.schemas import FAILURES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FAULTS = (Kind.FAILED, Kind.CONFLICTED, Kind.STALLED, Kind.RETRIED)
_KEYS = ("system", "source", "queue", "day", "kind", "reason")
_LONGEST_CHARS = 200
#: Behind so much of a reason nothing is looked at: Java looks for patterns on its stack, which ends.
_LOOKED_AT_CHARS = 2_000
_NO_REASON = "(none)"
#: (what varies from failure to failure, what stands for it), applied in this order
_PLACEHOLDERS = (
    # A quote within a word is an apostrophe.
    (r"""(?<!\w)'[^']*'(?!\w)|"[^"]*"|`[^`]*`""", "<text>"),
    (r"\b[a-z][a-z0-9+.-]*://\S+", "<url>"),
    (r"(?<![\w<])[\w.@~+-]*/[\w.@~+/-]*[\w~]/?", "<path>"),
    (r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
    (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<id>"),
    # Plain words of these letters exist (defaced); without a digit it is one of them.
    (r"(?i)\b(?:0x[0-9a-f]+|(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,})\b", "<hex>"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b", "<time>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)


def failures(*, events: DataFrame) -> DataFrame:
    """One row per queue, day, kind and normalised reason."""
    return (
        events.where(is_kind(*_FAULTS))
        .select("system", "source", "queue", "item", "kind", "at", F.to_date("at").alias("day"), *_reasons())
        .groupBy(*_KEYS)
        .agg(
            F.count("*").alias("failures"),
            F.count_distinct("item").alias("items"),
            F.min("example").alias("example"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
        )
        .select(*FAILURES.schema.fieldNames())
    )


def _reasons() -> tuple[Column, Column]:
    return normalised(F.col("reason")).alias("reason"), F.col("reason").alias("example")


def normalised(reason: Column) -> Column:
    """The reason with placeholders for what differs between two failures of the same kind."""
    text = F.substring(reason, 1, _LOOKED_AT_CHARS)
    for pattern, placeholder in _PLACEHOLDERS:
        text = F.regexp_replace(text, pattern, placeholder)
    return F.when(reason.rlike(r"\S"), F.substring(F.trim(text), 1, _LONGEST_CHARS)).otherwise(F.lit(_NO_REASON))
