"""Real parts of Spark on the loopback interface, from the installed package: a master, workers, a Connect server.

Each is one Java process. It is known to be ready, and where it listens, by its own log.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
import os
from pathlib import Path
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import pyspark

from queueyard.pipeline.session import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT_S = 180.0
HOME = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(folder: Path, *, master: str = "local[2]") -> Iterator[str]:
    """A Connect server, with a local session or on a cluster; gives its address for `--remote`."""
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command = ("org.apache.spark.deploy.SparkSubmit", "--class", _CONNECT, "--master", master, *words)
    with _Java(folder / "connect.log", *command, "spark-internal") as server:
        yield f"sc://127.0.0.1:{server.wait_for(r'Spark Connect server started at: [^ ]+:([0-9]+)')}"


@contextmanager
def standalone(folder: Path, *, workers: int) -> Iterator[str]:
    """A master and workers of one core each; gives the address for `--master`."""
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(_Java(folder / "master.log", _MASTER, *local))
        address = f"spark://127.0.0.1:{master.wait_for(r'Starting Spark master at [^ ]+:([0-9]+)')}"
        started = []
        for number in range(workers):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            command = (_WORKER, *local, *size, address)
            started.append(stack.enter_context(_Java(folder / f"worker-{number}.log", *command)))
        for worker in started:
            worker.wait_for("(Successfully registered) with master")
        yield address


def assert_all_worked(folder: Path, *, workers: int) -> None:
    """Each of the workers had one executor, which came to the end of a task."""
    for number in range(workers):
        [log] = (folder / f"work-{number}").glob("app-*/*/stderr")
        assert "Finished task" in log.read_text(), f"worker {number} did nothing"


class _Java:
    """One process, which ends with the block; its log says how it is doing."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stream:
            # `spark-class` becomes the Java process itself, so this is the one to end.
            self._process = subprocess.Popen(
                [HOME / "bin" / "spark-class", *command],
                env=spark_environment(),
                cwd=log.parent,
                stdout=stream,
                stderr=stream,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_for(self, sign: str) -> str:
        """What the group of `sign` is in the log, as soon as it is there."""
        end = time.monotonic() + START_TIMEOUT_S
        while not (found := re.search(sign, self._told())):
            assert self._process.poll() is None, f"it ended:\n{self._told()[-4000:]}"
            assert time.monotonic() < end, f"it did not start in time:\n{self._told()[-4000:]}"
            time.sleep(0.05)
        return found[1]

    def _told(self) -> str:
        return self._log.read_text(errors="replace")


def spark_environment() -> dict[str, str]:
    """What the programs of the package need to know."""
    return os.environ | {
        "JAVA_HOME": str(find_java(os.environ)),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
