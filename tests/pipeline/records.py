"""Raw records by hand, as bronze holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from queueyard.pipeline.schemas import LINES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lines(
    spark: SparkSession, stream: str, *records: dict[str, Any] | str, batch: int = 0, start: int = 0
) -> DataFrame:
    """Lines of one file, one after the other from offset `start` on; a text stands for itself."""
    rows = []
    position = start
    for record in records:
        raw = record if isinstance(record, str) else json.dumps(record)
        known = {
            "stream": stream,
            "place": "/yard",
            "file": "mail",
            "generation": 0,
            "position": position,
            "minor": 0,
            "raw": raw,
            "batch": batch,
        }
        rows.append(tuple(known.get(name) for name in LINES.schema.fieldNames()))
        position += len(raw) + 1
    return spark.createDataFrame(rows, LINES.schema)
