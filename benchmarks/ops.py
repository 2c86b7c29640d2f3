"""A durable push in batches against one huge request, and against the same batches without any file.

Three clients send the same ops to the same server, each in a process of its own against a fresh database, round after
round: `huge` makes one request of everything, `raw` posts batches from memory, `durable` is the product: batch files
synced to disk, sent, noted, cleared away. Then a durable push is killed in the middle and resumed.

    python benchmarks/ops.py            100,000 ops of 4 KiB
    python benchmarks/ops.py 20000 3    fewer ops, more rounds
"""

from __future__ import annotations

from contextlib import contextmanager
import json
import os
from pathlib import Path
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any
import urllib.request

import msgspec

from measuring import finish, report
from queueyard.ops.records import Op, OpType, PushRequest
from queueyard.ops.service import Ops
from queueyard.ops.transport import HttpTransport
from queueyard.ops.worker import PUSH_PATH, resume

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT_BYTES = 4_096
BATCH_OPS = 100
ROLES = ("huge", "raw", "durable")
_FRAME_BYTES = 200
_BASE = "".join(chr(97 + number * 7 % 26) for number in range(2 * TEXT_BYTES))


def text_of(number: int) -> str:
    """A text of its own for each op, in hardly any time."""
    return f"{number:012d}{_BASE[number % TEXT_BYTES : number % TEXT_BYTES + TEXT_BYTES - 12]}"


def bare_op(number: int) -> Op:
    return Op(
        op_id=f"op-{number:06d}",
        type=OpType.UPSERT,
        file_id=f"F{number:08d}",
        server_path=f"notes/{number // 1000}/{number:06d}.md",
        base_version=0,
    )


def whole_op(op: Op) -> Op:
    return msgspec.structs.replace(op, content=text_of(int(op.file_id[1:])))


# --- the three clients, each in a process of its own -----------------------------------------------------------------


def send_huge(server: str, count: int) -> None:
    ops = [whole_op(bare_op(number)) for number in range(count)]
    body = msgspec.json.encode(PushRequest(request_id="HUGE", batch_index=1, total_batches=1, ops=ops))
    transport = HttpTransport(server, timeout_s=600)
    reply = transport.exchange("POST", PUSH_PATH, body)
    assert reply.status == 200, reply.body[:500]


def send_raw(server: str, count: int) -> None:
    transport = HttpTransport(server, timeout_s=600)
    total = -(-count // BATCH_OPS)
    for index in range(1, total + 1):
        numbers = range((index - 1) * BATCH_OPS, min(index * BATCH_OPS, count))
        ops = [whole_op(bare_op(number)) for number in numbers]
        body = msgspec.json.encode(PushRequest(request_id="RAW", batch_index=index, total_batches=total, ops=ops))
        reply = transport.exchange("POST", PUSH_PATH, body)
        assert reply.status == 200, reply.body[:500]


def send_durable(server: str, count: int) -> None:
    ops = Ops.open(None, server=server, batch_ops=BATCH_OPS, batch_bytes=1 << 20)
    bare = [bare_op(number) for number in range(count)]
    ops.planner.plan_lazily(bare, [TEXT_BYTES + _FRAME_BYTES] * count, whole_op)
    assert resume(ops).applied == count


def as_client(role: str, server: str, count: int) -> None:
    send = {"huge": send_huge, "raw": send_raw, "durable": send_durable}[role]
    start = time.perf_counter()
    send(server, count)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak": peak_bytes(os.getpid())}))


# --- the bench -------------------------------------------------------------------------------------------------------


def peak_bytes(pid: int) -> int:
    """The most memory that the process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


@contextmanager
def fresh_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of a server with an empty database and no limit that matters here."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    script = Path(sys.executable).with_name("jolli-ops")
    words = ["--max-body-bytes", "2000000000", "--max-decompressed-bytes", "2000000000", "--max-ops", "10000000"]
    words += ["--max-waiting-bytes", "4000000000", "--body-timeout-s", "600"]
    command = [str(script), "serve", "--json", "--port", "0", "--data", str(folder / "data"), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("}"):
                break
        try:
            yield json.loads(told)["url"], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def client_command(role: str, server: str, count: int) -> list[str]:
    return [sys.executable, __file__, role, server, str(count)]


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"JOLLI_HOME": str(folder / "home")}


def measured(role: str, folder: Path, count: int) -> dict[str, float]:
    """Seconds, and the peaks of client and server."""
    shutil.rmtree(folder / "home", ignore_errors=True)
    os.sync()
    with fresh_server(folder) as (server, pid):
        done = subprocess.run(
            client_command(role, server, count),
            env=environment(folder),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return {"seconds": answer["seconds"], "client": answer["peak"], "server": peak_bytes(pid)}


def resent_after_kill(folder: Path, count: int) -> int:
    """How many batches a durable push sends twice when it is killed halfway and resumed."""
    shutil.rmtree(folder / "home", ignore_errors=True)
    total = -(-count // BATCH_OPS)
    with fresh_server(folder) as (server, _):
        with subprocess.Popen(client_command("durable", server, count), env=environment(folder)) as victim:
            while posts(server) < total // 2:
                time.sleep(0.005)
            victim.kill()
        subprocess.run([sys.executable, __file__, "resume", server], env=environment(folder), check=True)
        return posts(server) - total


def posts(server: str) -> int:
    with urllib.request.urlopen(f"{server}/metrics") as response:
        text = response.read().decode()
    found = re.search(r'requests_total\{route="/v1/sync/push",status="200"\} (\d+)', text)
    return int(found[1]) if found else 0


def main(count: int, rounds: int) -> None:
    print(f"{count:,} ops of {TEXT_BYTES} bytes, {rounds} rounds, load {os.getloadavg()[0]:.1f}", flush=True)
    taken: dict[str, list[dict[str, float]]] = {role: [] for role in ROLES}
    with tempfile.TemporaryDirectory(prefix="ops-bench-", dir=os.environ.get("QUEUEYARD_BENCH_DIR")) as name:
        for number in range(rounds):
            for role in ROLES:
                taken[role].append(measured(role, Path(name), count))
                told = "  ".join(f"{key} {value:,.1f}" for key, value in taken[role][-1].items())
                print(f"  round {number + 1}  {role:<8} {told}", flush=True)
        resent = resent_after_kill(Path(name), min(count, 20_000))

    def median(role: str, key: str) -> float:
        return statistics.median(one[key] for one in taken[role])

    for role in ROLES:
        report(f"{role}: ops per second", count / median(role, "seconds"), "ops/s")
        report(f"{role}: peak memory of the client", median(role, "client") / 1e6, "MB")
        report(f"{role}: peak memory of the server", median(role, "server") / 1e6, "MB")

    def ratio(role: str, other: str, key: str) -> float:
        """Of the same round, so that a slow minute of the machine hits both; the median over the rounds."""
        return statistics.median(one[key] / two[key] for one, two in zip(taken[role], taken[other], strict=True))

    report("durable against one huge request, time", ratio("durable", "huge", "seconds"), "x", at_most=1.1)
    report("durable against raw batches, speed", ratio("raw", "durable", "seconds"), "x", at_least=0.7)
    for side in ("client", "server"):
        figure = f"durable against one huge request, memory of the {side}"
        report(figure, ratio("durable", "huge", side), "x", at_most=0.1)
    report("batches sent twice after a kill", resent, "batches", at_most=1)
    finish()


if __name__ == "__main__":
    words = sys.argv[1:]
    if words and words[0] in ROLES:
        as_client(words[0], words[1], int(words[2]))
    elif words and words[0] == "resume":
        resume(Ops.open(None, server=words[1]))
    else:
        numbers = [int(word) for word in words]
        main(*(numbers + [100_000, 3][len(numbers) :]))
