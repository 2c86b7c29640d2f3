"""What a plan names, as one frame: read by tasks of Spark, or right here if there is little of it.

Planning a Python data source starts Python processes, which takes longer than reading some megabytes. The readers are
the same in both cases, so what is read is the same.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.arrow import ARROW_RECORD
from queueyard.pipeline.sources.registry import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from queueyard.pipeline.sources.positions import Plan, Read

#: up to here the driver reads by itself
FEW_BYTES = 32 << 20


def records_of(spark: SparkSession, plan: Plan) -> DataFrame:
    """The records of all sources. SourceFailed if one cannot be read."""
    if plan.bytes > FEW_BYTES:
        frames = [spark.read.format(read.format).options(**read.options).load() for read in plan.reads]
        return reduce(DataFrame.unionByName, frames)
    batches = [batch for read in plan.reads for batch in _batches(read)]
    return spark.createDataFrame(pa.Table.from_batches(batches, ARROW_RECORD), RECORD)


def _batches(read: Read) -> Iterator[pa.RecordBatch]:
    source = next(source for source in SOURCES if source.name() == read.format)
    reader = source(read.options).reader(RECORD)
    for partition in reader.partitions():
        yield from reader.read(partition)
