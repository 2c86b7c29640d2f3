"""Python workers of a local session: what they import, and who gives them memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyspark

from queueyard.pipeline.forker import without_archives

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

_ARCHIVES = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip"]


def test_archives_are_left_out_where_the_packages_are_installed() -> None:
    others = ["/a/job.zip", *sys.path]

    assert without_archives([*_ARCHIVES, *others]) == others


def test_archives_stay_where_nothing_else_has_the_packages(tmp_path: Path) -> None:
    path = [*_ARCHIVES, str(tmp_path)]

    assert without_archives(path) == path


def test_workers_import_what_is_installed(spark: SparkSession) -> None:
    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyarrow import RecordBatch

        for _ in batches:
            yield RecordBatch.from_pydict({"file": [pyspark.__file__]})

    found = spark.range(1).mapInArrow(imported, "file string").collect()

    assert [row["file"] for row in found] == [pyspark.__file__]


def test_workers_do_not_use_the_allocator_that_keeps_most(spark: SparkSession) -> None:
    def allocator(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyarrow import RecordBatch, default_memory_pool

        for _ in batches:
            yield RecordBatch.from_pydict({"name": [default_memory_pool().backend_name]})

    found = spark.range(1).mapInArrow(allocator, "name string").collect()

    assert [row["name"] for row in found] == ["system"]
