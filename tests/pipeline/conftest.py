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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests with a session go to one process, which shares it; the others run beside them."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session on two cores. Without Spark or Java the test is skipped, and in CI it fails."""
    from queueyard.pipeline.session import Spark, start

    try:
        session = start(Spark(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}))
    except (SparkMissing, JavaMissing) as fault:
        _do_without(f"{fault}. {fault.hint}")
    yield session
    session.stop()


def _do_without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
