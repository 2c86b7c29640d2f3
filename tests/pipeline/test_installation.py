"""What is installed of Spark, arranged so that it starts soonest; what its Python processes import and allocate by."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader
import pytest

from queueyard.pipeline.installation import classes_in, home_of_links, is_whole, java_options
from queueyard.pipeline.session import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

_PACKAGE = Path(pyspark.__file__).parent
_SCRIPT = Path(sys.executable).with_name("queueyard")
#: a session, and which of the files that its Java has mapped are classes that were kept
_MAPPED = """
from pathlib import Path
from queueyard.pipeline.session import Spark, start
session = start(Spark(master="local[1]"))
assert session.range(3).count() == 3
java = session.sparkContext._gateway.proc.pid
lines = Path(f"/proc/{java}/maps").read_text().splitlines()
print(*{line.split(maxsplit=5)[-1] for line in lines if "/classes-" in line})
"""
_LONGEST_S = 280
_ON_LINUX = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what Java has mapped")


def test_workers_import_what_is_installed(spark: SparkSession) -> None:
    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyarrow import RecordBatch

        for _ in batches:
            yield RecordBatch.from_pydict({"file": [pyspark.__file__]})

    found = spark.range(1).mapInArrow(imported, "file string").collect()

    assert [row["file"] for row in found] == [pyspark.__file__]


def test_so_do_the_processes_that_plan(spark: SparkSession) -> None:
    class Reader(DataSourceReader):
        def __init__(self, file: str) -> None:
            self._file = file

        def read(self, _: object) -> Iterator[tuple[str]]:
            yield (self._file,)

    class Planned(DataSource):
        @classmethod
        def name(cls) -> str:
            return "planned"

        def schema(self) -> str:
            return "file string"

        def reader(self, schema: object) -> DataSourceReader:
            import pyspark as theirs

            return Reader(theirs.__file__)

    spark.dataSource.register(Planned)

    assert [row["file"] for row in spark.read.format("planned").load().collect()] == [pyspark.__file__]


def test_workers_do_not_use_the_allocator_that_keeps_most(spark: SparkSession) -> None:
    def allocator(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyarrow import RecordBatch, default_memory_pool

        for _ in batches:
            yield RecordBatch.from_pydict({"name": [default_memory_pool().backend_name]})

    found = spark.range(1).mapInArrow(allocator, "name string").collect()

    assert [row["name"] for row in found] == ["system"]


def test_a_home_has_all_that_spark_looks_for_and_no_archives_of_python(tmp_path: Path) -> None:
    home = home_of_links(_PACKAGE, {"XDG_CACHE_HOME": str(tmp_path)})

    assert home is not None
    assert (home / "bin" / "spark-submit").samefile(_PACKAGE / "bin" / "spark-submit")
    assert (home / "jars").samefile(_PACKAGE / "jars")
    assert not (home / "python").exists()
    assert home.stat().st_mode & 0o077 == 0


def test_what_was_deleted_of_a_home_is_made_again(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = home_of_links(_PACKAGE, environment)
    assert home is not None
    (home / "jars").unlink()

    assert home_of_links(_PACKAGE, environment) == home
    assert (home / "jars").is_dir()


def test_a_spark_that_came_in_another_way_keeps_its_home(tmp_path: Path) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)

    assert home_of_links(tmp_path / "spark", {"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_without_a_folder_for_it_there_is_no_home_of_links(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    assert home_of_links(_PACKAGE, {"XDG_CACHE_HOME": str(tmp_path / "cache")}) is None


@pytest.mark.parametrize("open_to_others", [".", "queueyard"])
def test_what_others_may_change_is_not_run(tmp_path: Path, open_to_others: str) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = home_of_links(_PACKAGE, environment)
    assert home is not None
    (home if open_to_others == "." else tmp_path / open_to_others).chmod(0o777)

    assert home_of_links(_PACKAGE, environment) is None


def test_links_to_another_spark_are_not_followed(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    home = home_of_links(_PACKAGE, environment)
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path)

    assert home_of_links(_PACKAGE, environment) is None


def test_classes_of_one_java_are_not_those_of_another(tmp_path: Path) -> None:
    home = home_of_links(_PACKAGE, {"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    java = tmp_path / "java"
    java.mkdir()
    (java / "release").write_text('JAVA_VERSION="17.0.15"\n')
    older = classes_in(home, java)
    (java / "release").write_text('JAVA_VERSION="17.0.16"\n')

    assert classes_in(home, java) != older
    assert java_options(older) == []


@pytest.mark.parametrize(
    ("content", "so"), [(None, False), (b"", False), (bytes(4096), False), (b"\xa8\xba\x0b\xf0" + bytes(9), True)]
)
def test_what_java_did_not_write_to_its_end_has_no_head(tmp_path: Path, content: bytes | None, so: bool) -> None:
    if content is not None:
        (tmp_path / "classes.jsa").write_bytes(content)

    assert is_whole(tmp_path / "classes.jsa") is so


@_ON_LINUX
def test_sessions_start_with_the_classes_that_were_kept(tmp_path: Path) -> None:
    cache = tmp_path / "two words"
    cache.mkdir()

    told = _called(cache, str(_SCRIPT), "pipeline", "prepare", "--json")

    kept = json.loads(told)["path"]
    assert Path(kept).is_relative_to(cache)
    assert _called(cache, sys.executable, "-c", _MAPPED).splitlines() == [kept]
    assert not list(Path(kept).parent.glob("*.new"))
    # It is large, and folders of tests are kept for a while.
    Path(kept).unlink()


@_ON_LINUX
def test_java_does_without_classes_that_are_broken(tmp_path: Path) -> None:
    home, java = home_of_links(_PACKAGE, {"XDG_CACHE_HOME": str(tmp_path)}), find_java(os.environ)
    assert home is not None
    assert java is not None
    classes_in(home, java).write_bytes(b"half of an archive" * 1000)

    assert _called(tmp_path, sys.executable, "-c", _MAPPED).split() == []


def _called(cache: Path, *command: str) -> str:
    """What it prints, with its own cache."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        command, env=environment, cwd=cache, capture_output=True, text=True, timeout=_LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
