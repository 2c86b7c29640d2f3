"""The floor plan, held by the code itself: who may import whom, and which calls have one door only.

A file is looked at as it is written: an import inside a function counts like one at the top. What stands below
`if TYPE_CHECKING:` does not run, so within a system it may name a type of a later role.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src"
SYSTEMS = ("queen", "runforge", "panqueue", "jjq", "ops")
#: Systems whose floor plan is settled. One that is being built joins as soon as its README names all its files.
SETTLED = SYSTEMS
READERS = ("pipeline", "dashboard")

#: The roles of a system from left to right; a file may import the roles to its left.
LEVELS = {
    "records": 0,
    "errors": 1,
    "rules": 2,
    "settings": 3,
    "events": 3,
    "store": 4,
    "service": 5,
    "worker": 6,
    "__init__": 7,
    "cli": 8,
    "__main__": 9,
}
#: Files that only one system has: (system, file or folder) -> the level that it sits at. It may be imported from that
#: level on, and may import up to it. Each one has a line in the README of its system.
EXTRAS = {
    ("jjq", "advice"): LEVELS["rules"],
    ("jjq", "batches"): LEVELS["worker"],
    ("jjq", "batching"): LEVELS["rules"],
    ("jjq", "calls"): LEVELS["cli"],
    ("jjq", "checks"): LEVELS["service"],
    ("jjq", "cli_house"): LEVELS["cli"],
    ("jjq", "cli_items"): LEVELS["cli"],
    ("jjq", "cli_look"): LEVELS["cli"],
    ("jjq", "cli_run"): LEVELS["cli"],
    ("jjq", "doctor"): LEVELS["worker"],
    ("jjq", "home"): LEVELS["settings"],
    ("jjq", "hooks"): LEVELS["store"],
    ("jjq", "housekeeping"): LEVELS["service"],
    ("jjq", "jj"): LEVELS["store"],
    ("jjq", "landing"): LEVELS["service"],
    ("jjq", "locking"): LEVELS["store"],
    ("jjq", "looking"): LEVELS["service"],
    ("jjq", "parallel"): LEVELS["worker"],
    ("jjq", "pool"): LEVELS["service"],
    ("jjq", "progress"): LEVELS["cli"],
    ("jjq", "queueing"): LEVELS["service"],
    ("jjq", "recovery"): LEVELS["service"],
    ("jjq", "speculation"): LEVELS["rules"],
    ("jjq", "stats"): LEVELS["rules"],
    ("jjq", "waiting"): LEVELS["settings"],
    ("jjq", "workspaces"): LEVELS["store"],
    ("ops", "access"): LEVELS["store"],
    ("ops", "aside"): LEVELS["settings"],
    ("ops", "bodies"): LEVELS["settings"],
    ("ops", "calls"): LEVELS["cli"],
    ("ops", "cli_push"): LEVELS["cli"],
    ("ops", "cli_queue"): LEVELS["cli"],
    ("ops", "cli_server"): LEVELS["cli"],
    ("ops", "database"): LEVELS["store"],
    ("ops", "doctor"): LEVELS["worker"],
    ("ops", "export"): LEVELS["service"],
    ("ops", "folder"): LEVELS["store"],
    ("ops", "folder_rules"): LEVELS["rules"],
    ("ops", "home"): LEVELS["settings"],
    ("ops", "ignores"): LEVELS["rules"],
    ("ops", "ledger"): LEVELS["store"],
    ("ops", "metrics"): LEVELS["settings"],
    ("ops", "names"): LEVELS["errors"],
    ("ops", "openapi"): LEVELS["settings"],
    ("ops", "planning"): LEVELS["service"],
    ("ops", "postgres"): LEVELS["store"],
    ("ops", "preparing"): LEVELS["rules"],
    ("ops", "problems"): LEVELS["errors"],
    ("ops", "pulling"): LEVELS["service"],
    ("ops", "retries"): LEVELS["store"],
    ("ops", "schema"): LEVELS["store"],
    ("ops", "server"): LEVELS["worker"],
    ("ops", "serving"): LEVELS["worker"],
    ("ops", "texts"): LEVELS["store"],
    ("ops", "transport"): LEVELS["store"],
    ("ops", "views"): LEVELS["store"],
    ("ops", "writer"): LEVELS["service"],
    ("panqueue", "adding"): LEVELS["store"],
    ("panqueue", "address"): LEVELS["settings"],
    ("panqueue", "blocking"): LEVELS["store"],
    ("panqueue", "calls"): LEVELS["cli"],
    ("panqueue", "cli_house"): LEVELS["cli"],
    ("panqueue", "cli_jobs"): LEVELS["cli"],
    ("panqueue", "cli_queues"): LEVELS["cli"],
    ("panqueue", "cli_sandbox"): LEVELS["cli"],
    ("panqueue", "cli_schedules"): LEVELS["cli"],
    ("panqueue", "cli_watch"): LEVELS["cli"],
    ("panqueue", "client"): LEVELS["service"],
    ("panqueue", "dead_letters"): LEVELS["service"],
    ("panqueue", "desk"): LEVELS["service"],
    ("panqueue", "doctor"): LEVELS["service"],
    ("panqueue", "embedded"): LEVELS["store"],
    ("panqueue", "errands"): LEVELS["service"],
    ("panqueue", "executors"): LEVELS["service"],
    ("panqueue", "exporter"): LEVELS["worker"],
    ("panqueue", "family"): LEVELS["service"],
    ("panqueue", "flows"): LEVELS["settings"],
    ("panqueue", "histograms"): LEVELS["settings"],
    ("panqueue", "jobs"): LEVELS["settings"],
    ("panqueue", "link"): LEVELS["store"],
    ("panqueue", "media"): LEVELS["service"],
    ("panqueue", "metrics"): LEVELS["settings"],
    ("panqueue", "pacing"): LEVELS["records"],
    ("panqueue", "payloads"): LEVELS["rules"],
    ("panqueue", "placing"): LEVELS["records"],
    ("panqueue", "pool"): LEVELS["worker"],
    ("panqueue", "queues"): LEVELS["settings"],
    ("panqueue", "refusals"): LEVELS["settings"],
    ("panqueue", "renewal"): LEVELS["service"],
    ("panqueue", "running"): LEVELS["service"],
    ("panqueue", "schedules"): LEVELS["settings"],
    ("panqueue", "scheduling"): LEVELS["service"],
    ("panqueue", "scripts"): LEVELS["settings"],
    ("panqueue", "sharing"): LEVELS["service"],
    ("panqueue", "sync"): LEVELS["service"],
    ("panqueue", "tasks"): LEVELS["worker"],
    ("panqueue", "top"): LEVELS["settings"],
    ("panqueue", "tracing"): LEVELS["service"],
    ("panqueue", "turns"): LEVELS["service"],
    ("panqueue", "upkeep"): LEVELS["service"],
    ("panqueue", "wire"): LEVELS["settings"],
    ("queen", "archive"): LEVELS["service"],
    ("queen", "assignments"): LEVELS["service"],
    ("queen", "calls"): LEVELS["cli"],
    ("queen", "cli_assignments"): LEVELS["cli"],
    ("queen", "cli_house"): LEVELS["cli"],
    ("queen", "cli_messages"): LEVELS["cli"],
    ("queen", "cli_reservations"): LEVELS["cli"],
    ("queen", "cli_watch"): LEVELS["cli"],
    ("queen", "doctor"): LEVELS["worker"],
    ("queen", "glob_index"): LEVELS["rules"],
    ("queen", "glob_machine"): LEVELS["records"],
    ("queen", "globs"): LEVELS["errors"],
    ("queen", "guard"): LEVELS["worker"],
    ("queen", "home"): LEVELS["settings"],
    ("queen", "idx_json"): LEVELS["service"],
    ("queen", "index"): LEVELS["store"],
    ("queen", "mcp"): LEVELS["worker"],
    ("queen", "mcp_tools"): LEVELS["worker"],
    ("queen", "messages"): LEVELS["service"],
    ("queen", "ready"): LEVELS["rules"],
    ("queen", "reservations"): LEVELS["service"],
    ("queen", "segments"): LEVELS["settings"],
    ("queen", "waiting"): LEVELS["settings"],
    ("runforge", "agenda"): LEVELS["rules"],
    ("runforge", "calls"): LEVELS["cli"],
    ("runforge", "cli_groups"): LEVELS["cli"],
    ("runforge", "cli_house"): LEVELS["cli"],
    ("runforge", "cli_queue"): LEVELS["cli"],
    ("runforge", "cli_runs"): LEVELS["cli"],
    ("runforge", "cli_status"): LEVELS["cli"],
    ("runforge", "controls"): LEVELS["service"],
    ("runforge", "crew"): LEVELS["worker"],
    ("runforge", "direct"): LEVELS["worker"],
    ("runforge", "doctor"): LEVELS["worker"],
    ("runforge", "enqueue"): LEVELS["service"],
    ("runforge", "execution"): LEVELS["service"],
    ("runforge", "foreground"): LEVELS["worker"],
    ("runforge", "group_files"): LEVELS["store"],
    ("runforge", "groups"): LEVELS["rules"],
    ("runforge", "hooks"): LEVELS["worker"],
    ("runforge", "lineup"): LEVELS["rules"],
    ("runforge", "pace"): LEVELS["rules"],
    ("runforge", "plans"): LEVELS["rules"],
    ("runforge", "poller"): LEVELS["rules"],
    ("runforge", "recorder"): LEVELS["service"],
    ("runforge", "recovery"): LEVELS["service"],
    ("runforge", "run_files"): LEVELS["store"],
    ("runforge", "scribe"): LEVELS["worker"],
    ("runforge", "sklearn_models"): LEVELS["service"],
    ("runforge", "slots"): LEVELS["service"],
    ("runforge", "spawn"): LEVELS["store"],
    ("runforge", "state"): LEVELS["rules"],
    ("runforge", "status"): LEVELS["service"],
    ("runforge", "sweeps"): LEVELS["service"],
    ("runforge", "tokens"): LEVELS["rules"],
    ("runforge", "training"): LEVELS["service"],
    ("runforge", "workspace"): LEVELS["settings"],
}

TIME_CALLS = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "time.monotonic",
    "time.monotonic_ns",
    "time.sleep",
    "time.time",
    "time.time_ns",
}
SHELL_CALLS = {
    "asyncio.create_subprocess_shell",
    "os.popen",
    "os.system",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
RENAME_CALLS = {"os.rename", "os.renames", "os.replace", "shutil.move"}


@dataclass(frozen=True)
class Import:
    """One module that a file names, and whether that happens when it runs."""

    module: str
    line: int
    runs: bool


@dataclass(frozen=True)
class Source:
    """One file below src."""

    path: Path
    module: str
    tree: ast.Module

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(SOURCE)}:{line}"

    @property
    def package(self) -> str:
        return self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]

    def imports(self) -> Iterator[Import]:
        for node, runs in nodes_of(self.tree):
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, node.lineno, runs) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                for alias in node.names:
                    name = f"{origin}.{alias.name}"
                    yield Import(name if name in modules() else origin, node.lineno, runs)

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])

    def full_names(self) -> Iterator[tuple[str, int]]:
        """Every dotted name that the file speaks of, with what its imports make of its first word."""
        known: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                # `import a.b` binds a; `import a.b as c` binds c to a.b
                first_words = {alias.name.partition(".")[0] for alias in node.names if not alias.asname}
                known |= {word: word for word in first_words}
                known |= {alias.asname: alias.name for alias in node.names if alias.asname}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name) and (dotted := dotted_name(node)):
                first, dot, rest = dotted.partition(".")
                if first in known:
                    yield known[first] + dot + rest, node.lineno


def nodes_of(tree: ast.AST, *, runs: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, and whether they run: what stands below `if TYPE_CHECKING:` does not."""
    for child in ast.iter_child_nodes(tree):
        yield child, runs
        if isinstance(child, ast.If) and (dotted_name(child.test) or "").endswith("TYPE_CHECKING"):
            for statement in child.body:
                yield statement, False
                yield from nodes_of(statement, runs=False)
            for statement in child.orelse:
                yield statement, runs
                yield from nodes_of(statement, runs=runs)
        else:
            yield from nodes_of(child, runs=runs)


def dotted_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted_name(node.value)):
        return f"{left}.{node.attr}"
    return None


@cache
def modules() -> dict[str, Source]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        words = path.relative_to(SOURCE).with_suffix("").parts
        module = ".".join(words[:-1] if words[-1] == "__init__" else words)
        found[module] = Source(path, module, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


def below(package: str) -> list[Source]:
    return [one for name, one in modules().items() if name == package or name.startswith(package + ".")]


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def role_of(module: str) -> tuple[str, str] | None:
    """("queen", "store") for queueyard.queen.store; None outside the five systems."""
    words = module.split(".")
    if words[0] != "queueyard" or len(words) < 2 or words[1] not in SYSTEMS:
        return None
    return words[1], words[2] if len(words) > 2 else "__init__"


def test_every_file_of_a_system_has_a_role_or_a_line_in_the_table_of_extras() -> None:
    strangers = [
        f"{one.path.relative_to(SOURCE)} has no role that all systems share: add a line to "
        f"src/queueyard/{role[0]}/README.md and to EXTRAS in {Path(__file__).name}"
        for module, one in modules().items()
        if (role := role_of(module)) and role[0] in SETTLED and role[1] not in LEVELS and role not in EXTRAS
    ]

    assert strangers == []


@pytest.mark.parametrize("system", SETTLED)
def test_every_extra_file_has_a_line_in_the_readme_of_its_system(system: str) -> None:
    there = {role[1] for module in modules() if (role := role_of(module)) and role in EXTRAS and role[0] == system}
    readme = SOURCE / "queueyard" / system / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""

    assert [name for name in sorted(there) if f"{name}.py" not in text and f"{name}/" not in text] == []


def test_the_kernel_imports_the_standard_library_and_msgspec_only() -> None:
    allowed = sys.stdlib_module_names | {"msgspec"}

    found = [
        f"{one.at(imported.line)} imports {imported.module}"
        for one in below("queueyard.kernel")
        for imported in one.imports()
        if imported.module.partition(".")[0] not in allowed and not is_in(imported.module, "queueyard.kernel")
    ]

    assert found == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_imports_no_other_system_and_nothing_that_is_built_on_systems(system: str) -> None:
    forbidden = [f"queueyard.{name}" for name in (*SYSTEMS, *READERS, "yard", "cli") if name != system]

    found = [
        f"{one.at(imported.line)} imports {imported.module}"
        for one in below(f"queueyard.{system}")
        for imported in one.imports()
        if any(is_in(imported.module, package) for package in forbidden)
    ]

    assert found == []


@pytest.mark.parametrize("system", SETTLED)
def test_within_a_system_a_file_imports_only_what_stands_to_its_left(system: str) -> None:
    levels = LEVELS | {name: level for (owner, name), level in EXTRAS.items() if owner == system}

    found = []
    for one in below(f"queueyard.{system}"):
        mine = role_of(one.module)
        for imported in one.imports():
            theirs = role_of(imported.module)
            if not imported.runs or mine is None or theirs is None or theirs[0] != system or mine == theirs:
                continue
            both_are_roles = mine[1] in LEVELS and theirs[1] in LEVELS
            my_level, their_level = levels.get(mine[1], 99), levels.get(theirs[1], 99)
            if their_level > my_level or (their_level == my_level and both_are_roles):
                found.append(f"{one.at(imported.line)} ({mine[1]}) imports {theirs[1]}, which is not to its left")

    assert found == []


@pytest.mark.parametrize("reader", READERS)
def test_pipeline_and_dashboard_know_records_and_events_of_the_systems_only(reader: str) -> None:
    found = [
        f"{one.at(imported.line)} imports {imported.module}"
        for one in below(f"queueyard.{reader}")
        for imported in one.imports()
        if (role := role_of(imported.module)) and role[1] not in {"records", "events"}
    ]

    assert found == []


def test_nobody_imports_the_pipeline_but_the_dashboard_what_needs_no_spark() -> None:
    for_the_dashboard = {f"queueyard.pipeline.{name}" for name in ("delta", "errors", "names", "settings")}

    found = [
        f"{one.at(imported.line)} imports {imported.module}"
        for module, one in modules().items()
        if not is_in(module, "queueyard.pipeline")
        for imported in one.imports()
        if (is_in(imported.module, "queueyard.pipeline") or is_in(imported.module, "pyspark"))
        and not (is_in(module, "queueyard.dashboard") and imported.module in for_the_dashboard)
    ]

    assert found == []


def test_only_the_clock_asks_for_the_time_or_sleeps() -> None:
    found = [
        f"{one.at(line)} uses {name}"
        for module, one in modules().items()
        if module != "queueyard.kernel.clock"
        for name, line in one.full_names()
        if name in TIME_CALLS
    ]

    assert found == []


def test_only_the_kernel_puts_a_file_in_the_place_of_another() -> None:
    doors = {"queueyard.kernel.atomic", "queueyard.kernel.locks", "queueyard.kernel.testing"}

    found = []
    for module, one in modules().items():
        if module not in doors:
            found += [f"{one.at(line)} uses {name}" for name, line in one.full_names() if name in RENAME_CALLS]
            found += [f"{one.at(line)} calls .{name}()" for name, line in path_moves(one.tree)]

    assert found == []


def path_moves(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Calls that look like Path.rename(target) and Path.replace(target): a text is replaced with two arguments."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"rename", "replace"}
            and len(node.args) == 1
            and not node.keywords
        ):
            yield node.func.attr, node.lineno


def test_there_is_one_shell_call_at_most_and_it_is_in_jjq() -> None:
    found = [(module, one.at(line)) for module, one in modules().items() for line in set(shell_lines(one))]

    assert len(found) <= 1
    assert [where for module, where in found if not is_in(module, "queueyard.jjq")] == []


def shell_lines(one: Source) -> Iterator[int]:
    yield from (line for name, line in one.full_names() if name in SHELL_CALLS)
    for node in ast.walk(one.tree):
        if isinstance(node, ast.keyword) and node.arg == "shell" and not is_false(node.value):
            yield node.value.lineno


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


class TestTheGuardItself:
    """Files that break the rules on purpose must be seen."""

    @staticmethod
    def source(text: str, module: str = "queueyard.queen.store") -> Source:
        return Source(SOURCE / "made_up.py", module, ast.parse(text))

    @pytest.mark.parametrize(
        "text",
        [
            "import time\ntime.sleep(1)",
            "import time as t\nt.sleep(1)",
            "from time import sleep\nsleep(1)",
            "from time import sleep as nap\nwait = nap",
            "def f():\n    import time\n    return time.sleep",
        ],
    )
    def test_every_way_to_call_sleep_is_seen(self, text: str) -> None:
        assert "time.sleep" in {name for name, _ in self.source(text).full_names()}

    @pytest.mark.parametrize(
        "text", ["from datetime import datetime\ndatetime.now()", "import datetime as d\nd.datetime.now()"]
    )
    def test_every_way_to_ask_for_the_date_is_seen(self, text: str) -> None:
        assert "datetime.datetime.now" in {name for name, _ in self.source(text).full_names()}

    @pytest.mark.parametrize(
        ("text", "module"),
        [
            ("import queueyard.kernel.atomic", "queueyard.kernel.atomic"),
            ("from queueyard.kernel import atomic", "queueyard.kernel.atomic"),
            ("from queueyard.kernel.atomic import Files", "queueyard.kernel.atomic"),
            ("from ..kernel import atomic", "queueyard.kernel.atomic"),
            ("from ..kernel.atomic import Files", "queueyard.kernel.atomic"),
            ("def f():\n    from queueyard.kernel import atomic", "queueyard.kernel.atomic"),
        ],
    )
    def test_every_way_to_import_is_seen(self, text: str, module: str) -> None:
        assert [imported.module for imported in self.source(text).imports()] == [module]

    def test_an_import_for_types_only_is_told_apart(self) -> None:
        text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import json\nelse:\n    import os\n"

        seen = {imported.module: imported.runs for imported in self.source(text).imports()}

        assert seen == {"typing": True, "json": False, "os": True}

    @pytest.mark.parametrize(
        "text",
        [
            "import subprocess\nsubprocess.run('x', shell=True)",
            "import subprocess\nsubprocess.run('x', shell=wanted)",
            "import os\nos.system('x')",
            "from os import popen\npopen('x')",
            "from subprocess import getoutput\ngetoutput('x')",
        ],
    )
    def test_every_way_to_a_shell_is_seen(self, text: str) -> None:
        assert set(shell_lines(self.source(text))) == {2}

    @pytest.mark.parametrize(("text", "moves"), [("a.rename(b)", 1), ("a.replace(b)", 1), ("a.replace('x', 'y')", 0)])
    def test_a_file_that_is_moved_is_told_from_a_text_that_is_changed(self, text: str, moves: int) -> None:
        assert len(list(path_moves(ast.parse(text)))) == moves
