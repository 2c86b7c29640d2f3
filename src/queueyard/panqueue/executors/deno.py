"""Handlers in JavaScript or TypeScript, in Deno, which enforces a policy by permissions of its own.

    resize = Deno("/srv/app/resize.ts", Policy(read=("/srv/in",), net=("api.example.org:443",)))
    worker = Worker(Queue("resize", executor=resize), resize)

Deno is a wheel (`pip install deno`), or on the PATH. It knows hosts without namespaces, but limits only V8's own heap.
"""

from __future__ import annotations

import os
from pathlib import Path
import shutil
import sys
import sysconfig
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from queueyard.panqueue.executors import guarantees
from queueyard.panqueue.executors.children import Launch
from queueyard.panqueue.executors.crew import Crew
from queueyard.panqueue.executors.errors import BadHandler
from queueyard.panqueue.executors.guarantees import Guarantee
from queueyard.panqueue.executors.policy import ANY_HOST, Policy, check_policy, child_environment, net_rules
from queueyard.panqueue.executors.pool import PoolSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.panqueue.queues import Queue

_CHILD = str(Path(__file__).with_name("deno_child.js"))
_LINKS = "links that are there already are followed; new ones cannot be made"
_LAUNCH = str(Path(__file__).with_name("deno_launch.py"))


class Deno:
    """Handlers of one script. Given to a queue as its executor and to its worker as the handler."""

    def __init__(self, script: str, policy: Policy, settings: PoolSettings | None = None) -> None:
        """`script`: its default export is the handler. Nothing is checked before a worker starts."""
        self._script = Path(script).absolute()
        self._policy = policy
        settings = settings or PoolSettings()
        self._settings = settings if policy.cpu_s is None else msgspec.structs.replace(settings, max_jobs=1)

    def __call__(self, _job: object, /) -> NoReturn:
        """It cannot be called in the worker."""
        raise BadHandler(f"{self._script} runs in Deno only", hint="Give the queue the same object: executor=...")

    def explain(self) -> list[Guarantee]:
        return list(_guarantees(self._policy, find_deno()))

    def crew(self, queue: Queue[Any, Any], handler: Callable[..., Any]) -> Crew:  # noqa: ARG002  the script is it
        """BadHandler if there is no script; BadPolicy; PolicyRefused if Deno cannot enforce it, or is not here."""
        if not self._script.is_file():
            raise BadHandler(f"there is no script {self._script}", hint=f"ls -l {self._script.parent}")
        check_policy(self._policy)
        guarantees.refuse_what_is_not_held(self.explain())
        told = {"handler": self._script.as_uri(), "keeps_result": queue.keep_completed is not None}
        launch = Launch(
            argv=[sys.executable, "-I", "-B", _LAUNCH, str(self._policy.cpu_s or 0), *self._command()],
            env=child_environment(self._policy, os.environ) | {"NO_COLOR": "1"},
            hello=msgspec.json.encode(told),
            has_one_line=True,
        )
        return Crew(queue, launch, self._settings)

    def _command(self) -> list[str]:
        policy = self._policy
        granted = {
            "read": (str(self._script), *policy.read, *policy.write),
            "write": policy.write,
            "net": tuple(_told(rule.host, rule.port) for rule in net_rules(policy)),
            "env": policy.env,
        }
        flags = [f"--allow-{what}={','.join(names)}" for what, names in granted.items() if names]
        fixed = ["--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock", "--quiet"]
        memory = f"--v8-flags=--max-old-space-size={policy.memory_mb}"
        return [find_deno() or "deno", "run", *fixed, memory, *flags, _CHILD]


def find_deno() -> str | None:
    """The program: beside this Python, where its wheel puts it, or on the PATH."""
    return shutil.which("deno", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}")


def _told(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _guarantees(policy: Policy, deno: str | None) -> Iterator[Guarantee]:
    held_by = "Deno" if deno else None
    missing = None if deno else "Deno is not here: pip install deno"
    for what, allowed in (("read", (*policy.read, *policy.write)), ("write", policy.write), ("env", policy.env)):
        odd = [name for name in allowed if "," in name]
        links = None if what == "env" or not allowed else _LINKS
        note = f"Deno cannot be told a name with a comma: {odd[0]}" if odd else missing or links
        listed = ", ".join(allowed) or "nothing"
        yield Guarantee(what=what, allowed=listed, held_by=None if odd else held_by, note=note)
    anywhere = [rule for rule in net_rules(policy) if rule.host == ANY_HOST]
    yield Guarantee(
        what="net",
        allowed=", ".join(policy.net) or "nothing",
        held_by=None if anywhere else held_by,
        note="Deno cannot allow a port of every host" if anywhere else missing,
    )
    sockets = f"those below {', '.join(policy.write)}" if policy.write else "nothing"
    yield Guarantee(what="unix sockets", allowed=sockets, held_by=held_by, note=missing)
    for what in ("signals", "ptrace", "credentials"):
        yield Guarantee(what=what, allowed="nothing", held_by=held_by, note=missing)
    programs = "what a program does is not limited by Deno" if policy.run or policy.processes else missing
    yield Guarantee(
        what="run",
        allowed=", ".join(policy.run) or "nothing",
        held_by=None if policy.run or policy.processes else held_by,
        note=programs,
    )
    heap = "buffers outside of V8's heap are not counted"
    yield Guarantee(what="memory", allowed=f"{policy.memory_mb} MiB", held_by=held_by and "V8", note=missing or heap)
    cpu = "everything" if policy.cpu_s is None else f"{policy.cpu_s} s"
    yield Guarantee(what="cpu", allowed=cpu, held_by="rlimit" if policy.cpu_s else "no limit asked for")
    yield Guarantee(what="time-out", allowed="killed", held_by="process")
