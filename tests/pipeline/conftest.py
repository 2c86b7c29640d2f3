"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

from __future__ import annotations

from importlib.util import find_spec
import os
from typing import TYPE_CHECKING, NoReturn

import pytest

from queueyard.pipeline.errors import JavaMissing, SparkMissing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed

_MISSING = "pyspark and deltalake are not installed: pip install 'queueyard[pipeline,embedded]'"


class _WithoutSpark(pytest.Module):
    """A file of tests that cannot even be imported here."""

    def collect(self) -> NoReturn:
        _do_without(_MISSING)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if find_spec("pyspark") is not None and find_spec("deltalake") is not None:
        return None
    module: pytest.Module = _WithoutSpark.from_parent(parent, path=module_path)
    return module


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests with a session go to one process, which shares it; the others run beside them."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session on two cores. Without Spark or Java the test is skipped, and in CI it fails."""
    from queueyard.pipeline.session import Spark, fit, start

    try:
        session = start(Spark(master="local[2]"))
    except (SparkMissing, JavaMissing) as fault:
        _do_without(f"{fault}. {fault.hint}")
    fit(session, rows=0)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Made-up histories and the tables of a run over them, for all tests that run over the same in another way."""
    from pipeline.histories import undisturbed_run

    return undisturbed_run(spark, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="session")
def connect(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    from pipeline.clusters import connect_server

    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


def _do_without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
