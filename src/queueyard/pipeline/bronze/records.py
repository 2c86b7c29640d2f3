"""What a plan names, as one frame: read by tasks of Spark, or right here if there is little of it.

Planning a Python data source starts Python processes, which takes longer than reading some megabytes. The readers are
the same in both cases, so what is read is the same.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.lines import LineSource
from queueyard.pipeline.sources.registry import SOURCES
from queueyard.pipeline.streams import asked_of, shapes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from queueyard.pipeline.sources.positions import Plan, Read

#: up to here the driver reads by itself
FEW_BYTES = 32 << 20


def records_of(spark: SparkSession, plan: Plan) -> DataFrame:
    """The records of all sources, with what the source has read of lines. SourceFailed if one cannot be read."""
    reads = [(_with_shapes(read, plan), _schema_of(read, plan)) for read in plan.reads]
    if plan.bytes > FEW_BYTES:
        frames = [
            spark.read.format(read.format).options(**read.options).schema(schema).load() for read, schema in reads
        ]
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
    table = pa.concat_tables([_table(read, schema) for read, schema in reads], promote_options="default")
    return spark.createDataFrame(table, from_arrow_schema(table.schema))


def _with_shapes(read: Read, plan: Plan) -> Read:
    if read.format != LineSource.name():
        return read
    shapes = msgspec.json.encode(shapes_of(plan.streams)).decode()
    return msgspec.structs.replace(read, options={**read.options, "shapes": shapes})


def _schema_of(read: Read, plan: Plan) -> T.StructType:
    """Only lines are read as records by their source."""
    if read.format != LineSource.name():
        return RECORD
    return T.StructType([*RECORD.fields, T.StructField("record", asked_of(shapes_of(plan.streams)))])


def _table(read: Read, schema: T.StructType) -> pa.Table:
    source = next(source for source in SOURCES if source.name() == read.format)
    reader = source(read.options).reader(schema)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    # There may be none: a file that is rewritten may be gone by now, and in what is left of a file no line may start.
    wanted = to_arrow_schema(schema)
    return pa.Table.from_batches(batches, wanted) if batches else wanted.empty_table()
