"""The executors that a queue can be given: a plain child process, and one that is locked in.

Without an executor a handler runs inline, in the worker itself. That is the fastest, and enforces nothing.
"""

from __future__ import annotations

from dataclasses import asdict
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.proc import without_secrets
from queueyard.panqueue.executors import bubblewrap, foundation, guarantees
from queueyard.panqueue.executors.children import Launch
from queueyard.panqueue.executors.confinement import Confinement
from queueyard.panqueue.executors.crew import Crew
from queueyard.panqueue.executors.handlers import Handler, handler_named
from queueyard.panqueue.executors.machine import Machine, this_machine
from queueyard.panqueue.executors.policy import (
    Policy,
    check_policy,
    child_environment,
    find_program,
    net_rules,
    without_server,
)
from queueyard.panqueue.executors.pool import PoolSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue.executors.guarantees import Guarantee
    from queueyard.panqueue.queues import Queue

_PROGRAM = str(Path(__file__).with_name("child.py"))
#: bubblewrap makes these anew for every sandbox
_FRESH = ("/proc", "/dev")


class Subprocess:
    """Handlers in plain child processes: a crash or a leak stays theirs, but they may do what the worker may."""

    def __init__(self, settings: PoolSettings | None = None) -> None:
        self._settings = settings or PoolSettings()

    def explain(self) -> list[Guarantee]:
        return guarantees.of_subprocess(this_machine())

    def crew(self, queue: Queue[Any, Any], handler: Callable[..., Any]) -> Crew:
        """BadHandler if a child could not find the handler."""
        found = handler_named(handler)
        launch = Launch(
            argv=_python(),
            env=without_server(without_secrets(os.environ)),
            cwd=Path.cwd(),
            hello=_hello(queue, found, confinement=None, is_proxied=False),
        )
        return Crew(queue, launch, self._settings)


class Sandbox:
    """Handlers in child processes that can do what their policy names, and nothing else."""

    def __init__(self, policy: Policy, settings: PoolSettings | None = None, *, machine: Machine | None = None) -> None:
        """`machine`: what is here to make a sandbox of; asked if left out.

        Nothing is checked yet: whoever only adds jobs has neither the paths of the policy nor the machine.
        """
        self._policy = policy
        settings = settings or PoolSettings()
        # The kernel counts processor time for the life of a process.
        self._settings = settings if policy.cpu_s is None else msgspec.structs.replace(settings, max_jobs=1)
        self._machine = machine

    @property
    def machine(self) -> Machine:
        return self._machine or this_machine()

    def explain(self) -> list[Guarantee]:
        return guarantees.of_sandbox(self._policy, self.machine)

    def crew(self, queue: Queue[Any, Any], handler: Callable[..., Any]) -> Crew:
        """BadHandler; BadPolicy if a path is missing or a rule makes no sense; PolicyRefused if nothing enforces it."""
        check_policy(self._policy)
        guarantees.refuse_what_is_not_held(self.explain())
        found = handler_named(handler)
        return Crew(queue, self._launch(queue, found), self._settings)

    def _launch(self, queue: Queue[Any, Any], handler: Handler) -> Launch:
        policy, machine = self._policy, self.machine
        rules = net_rules(policy)
        wrapped = machine.bubblewrap is not None
        read = [*foundation.readable(), handler.code, *policy.read]
        is_proxied = wrapped and bool(rules)
        left = Confinement(
            read=(*read, *(_FRESH if wrapped else foundation.devices())),
            write=(*policy.write, "/dev/null"),
            execute=(*self._programs(), *foundation.loaders()) if policy.run else (),
            ports=() if is_proxied else tuple(rule.port for rule in rules),
            landlock=machine.landlock,
            namespaces=wrapped,
            processes=policy.processes,
            memory_mb=policy.memory_mb,
            cpu_s=policy.cpu_s,
        )
        argv = _python()
        if machine.bubblewrap is not None:
            shown = [*read, *self._programs()]
            argv = bubblewrap.wrap(machine.bubblewrap, argv, read=shown, write=policy.write)
        return Launch(
            argv=argv,
            env=child_environment(policy, os.environ),
            hello=_hello(queue, handler, confinement=left, is_proxied=is_proxied),
            rules=rules if is_proxied else None,
        )

    def _programs(self) -> list[str]:
        return [path for name in self._policy.run if (path := find_program(name)) is not None]


def _python() -> list[str]:
    # Isolated: neither the folder of the program nor the variables of the worker say where modules come from.
    return [sys.executable, "-I", "-B", "-u", _PROGRAM]


def _hello(queue: Queue[Any, Any], handler: Handler, *, confinement: Confinement | None, is_proxied: bool) -> bytes:
    told = {
        "path": [str(Path(path).absolute()) for path in sys.path],
        "handler": handler,
        "confinement": None if confinement is None else asdict(confinement),
        "is_proxied": is_proxied,
        "keeps_result": queue.keep_completed is not None,
    }
    return msgspec.json.encode(told)
