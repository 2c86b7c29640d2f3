"""A yard with something in every system, for tests, measurements and pictures of the dashboard.

Everything is made in the formats of the systems, in their own places; only the texts are made up. `mark` is a text that
stands wherever an agent or a job can put one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
import json
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.events import System
from queueyard.ops import Ops, resume
from queueyard.ops.records import Op, OpType
from queueyard.panqueue import Job, Keep, Queue, QueueClient, Worker
from queueyard.runforge import RunForge
from queueyard.runforge.records import Job as Run
from queueyard.runforge.records import JobState, QueueFile
from queueyard.yard.places import Place, add

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = ("ana", "ben", "cleo", "dora")
_SUBJECTS = ("May I touch theme.css?", "The login endpoint is ready", "Review, please", "Flaky test in checkout")
_PATTERNS = ("src/ui/**", "src/api/*.py", "docs/**", "tests/unit/**")
_PEOPLE = ("customer-1", "customer-2", "customer-3")
#: nobody listens there, so that what is queued stays queued
NOWHERE = "http://127.0.0.1:9"


def make_queen(root: Path, *, messages: int = 24, mark: str = "") -> Place:
    beads = root / ".beads"
    beads.mkdir(parents=True)
    now = datetime.now(UTC)
    _write(
        beads / "queen_messages.jsonl",
        [
            {
                "id": f"qm-{number:06d}",
                "created_at": to_rfc3339(now - timedelta(minutes=7 * (messages - number))),
                "from": AGENTS[number % 4] + mark,
                "to": AGENTS[(number + 1) % 4] + mark,
                "subject": _SUBJECTS[number % 4] + mark,
                "body": f"It is about issue qy-{number % 9}.{mark}",
                "issue_id": f"qy-{number % 9}{mark}",
                "importance": ("normal", "high", "normal", "urgent")[number % 4] + mark,
                "read": number % 3 == 0,
            }
            for number in range(messages)
        ],
    )
    _write(
        beads / "queen_assignments.jsonl",
        [
            {
                "id": f"qa-{number}",
                "created_at": to_rfc3339(now - timedelta(hours=number + 1)),
                "updated_at": to_rfc3339(now - timedelta(hours=number + 1)),
                "issue_id": f"qy-{number}{mark}",
                "agent": agent + mark,
                "droid": agent + mark,
                "assigned_by": "queen",
                "status": "active",
                "reason": f"next in line{mark}",
            }
            for number, agent in enumerate(AGENTS)
        ],
    )
    _write(
        beads / "queen_reservations.jsonl",
        [
            {
                "id": f"qr-{number}",
                "created_at": to_rfc3339(now - timedelta(minutes=20)),
                "expires_at": to_rfc3339(now + timedelta(hours=number + 1)),
                "pattern": pattern + mark.replace("/", ""),
                "agent": AGENTS[number] + mark,
                "droid": AGENTS[number] + mark,
                "issue_id": f"qy-{number}",
                "status": "active",
                "exclusive": number % 2 == 0,
                "reason": f"until it is merged{mark}",
            }
            for number, pattern in enumerate(_PATTERNS)
        ],
    )
    return Place(system=System.QUEEN, at=str(root))


def make_runforge(root: Path, *, runs: int = 24, mark: str = "") -> Place:
    folder = root / ".runforge" / "queue"
    folder.mkdir(parents=True)
    # Local times without a zone, as the contract has them.
    now = datetime.now().replace(microsecond=0)  # noqa: DTZ005
    jobs = []
    for number in range(runs):
        state = (JobState.SUCCEEDED, JobState.FAILED, JobState.QUEUED, JobState.QUEUED, JobState.RUNNING)[number % 5]
        started = now - timedelta(minutes=runs - number) if state is not JobState.QUEUED else None
        is_over = state in {JobState.SUCCEEDED, JobState.FAILED}
        run = f"run-{number:04d}"
        jobs.append(
            Run(
                job_id=f"job_{now:%Y%m%d_%H%M%S}_{number:04d}",
                run_id=run,
                group_id=f"{('wide', 'deep', 'tuned')[number % 3]}{mark}",
                state=state,
                created_at=(now - timedelta(minutes=2 * runs - number)).isoformat(),
                started_at=started.isoformat() if started else None,
                finished_at=(started + timedelta(seconds=40 + number)).isoformat() if started and is_over else None,
                error=f"out of memory at depth {number % 7}{mark}" if state is JobState.FAILED else None,
            )
        )
        log = root / ".ml" / "runs" / run
        log.mkdir(parents=True)
        (log / "logs.txt").write_text(f"epoch 1: loss 0.{number}\n{mark}\n", encoding="utf-8")
    (folder / "queue.json").write_bytes(msgspec.json.encode(QueueFile(jobs=jobs)))
    with RunForge.open(root, environment={}).store.writing():
        """What stands in queue.json is taken over."""
    return Place(system=System.RUNFORGE, at=str(root))


def make_panqueue(url: str, queue: str, *, jobs: int = 60, failing: int = 6, mark: str = "") -> Place:
    """A keyed queue: some jobs of it have failed, two are running for good, the others wait."""
    # In a thread of its own: a test that drives a browser has an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(_fill(url, queue, jobs, failing, mark))).result()
    return Place(system=System.PANQUEUE, at=url)


async def _fill(url: str, name: str, jobs: int, failing: int, mark: str) -> None:
    queue = Queue(name, dict[str, Any], mode="keyed", key_concurrency=4, keep_completed=Keep(count=100))
    left = failing

    async def fail(_: Job[dict[str, Any]]) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        raise RuntimeError(f"the line was busy{mark}")

    done = asyncio.Event()
    async with QueueClient(url) as client:
        handle = client.queue(queue)
        for number in range(failing):
            await handle.add({"mail": f"broken {number}{mark}"}, key=_PEOPLE[number % 3] + mark)
        if failing:
            async with Worker(queue, fail, url=url, concurrency=4):
                await done.wait()
        payloads = [{"mail": f"hello {number}{mark}"} for number in range(jobs)]
        await handle.add_many(payloads, key=lambda payload: _PEOPLE[len(str(payload)) % 3] + mark)


def make_ops(root: Path, *, files: int = 60, mark: str = "") -> Place:
    """A client's home: one request on its way to nowhere, and two dead letters."""
    home = root / "jolli"
    ops = Ops.open(None, environment={"JOLLI_HOME": str(home)}, server=NOWHERE, batch_ops=25)
    names = mark.replace("/", "")
    changes = [_op(number, f"notes/{number:03d}{names}.md") for number in range(files)]
    ops.plan_ops(changes, message=f"spring cleaning{mark}")
    (manifest,) = ops.queue.requests()
    for number in range(2):
        op = _op(files + number, f"notes/too-long-{number}{names}.md")
        reason = f"the server takes 8 MB per file{mark}"
        ops.bury(op, code="content_too_large", reason=reason, manifest=manifest, index=1, status=422)
    return Place(system=System.OPS, at=str(home))


def push_to(url: str, home: Path, *, files: int) -> None:
    """Files that are pushed to a server, and one change that comes too late."""
    ops = Ops.open(None, environment={"JOLLI_HOME": str(home)}, server=url)
    ops.plan_ops([_op(number, f"notes/{number:03d}.md") for number in range(files)])
    resume(ops)
    ops.plan_ops([msgspec.structs.replace(_op(0, "notes/000.md"), content="another text\n")])
    resume(ops)


def list_places(root: Path, places: list[Place]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for place in places:
        add(root, place)


def _op(number: int, path: str) -> Op:
    return Op(
        op_id=f"op-{number}",
        type=OpType.UPSERT,
        file_id=f"file-{number}",
        server_path=path,
        base_version=0,
        content=f"note {number}\n",
    )


def _write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
