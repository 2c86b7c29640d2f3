"""What the kernel and the console offer, name by name, so that a change of it is deliberate."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SURFACE: dict[str, set[str]] = {
    "kernel/__init__": set(),
    "kernel/atomic": {
        "BadLine",
        "FILES",
        "Files",
        "Line",
        "NOT_UNDERSTOOD",
        "append_lines",
        "is_still_at",
        "read_document",
        "read_lines",
        "replace_file",
    },
    "kernel/backoff": {"Backoff"},
    "kernel/clock": {
        "BadTime",
        "Clock",
        "SYSTEM_CLOCK",
        "SystemClock",
        "format_duration",
        "from_rfc3339",
        "parse_duration",
        "parse_since",
        "to_rfc3339",
    },
    "kernel/errors": {
        "BadSettings",
        "CorruptFile",
        "LockTimeout",
        "QueueyardError",
        "StorageFailed",
        "UnsafePath",
        "UsageFault",
        "explaining",
    },
    "kernel/events": {"Event", "Journal", "Kind", "System", "event_id", "make_event"},
    "kernel/findings": {"Finding"},
    "kernel/ids": {"UlidSource", "derived_ulid", "find_id", "new_id", "new_ulid", "sequence_id", "ulid_time"},
    "kernel/lifecycle": {"Lifecycle", "Phase"},
    "kernel/locks": {"FileLock", "Holder"},
    "kernel/log": {"LineFormatter", "redact", "start_logging"},
    "kernel/output": {"UNSEEN", "Output", "Progress", "printable"},
    "kernel/paths": {"safe_join", "safe_segment"},
    "kernel/proc": {
        "Child",
        "Identity",
        "identity_of",
        "is_alive",
        "own_identity",
        "signal_group",
        "start",
        "stop_stranger",
        "wait_for_exit",
        "without_secrets",
    },
    "kernel/settings": {"Layer", "Settled", "environment_layer", "file_layer", "settle"},
    "kernel/testing": {"ClaimHistory", "Died", "FakeClock", "FaultyFiles", "Loss", "Step"},
    "console": {"Script", "examples", "fail", "json_option", "tell_findings", "version_option"},
}


def public_names(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_offers_exactly_what_is_written_here(source: Path, module: str) -> None:
    assert public_names(source / "queueyard" / f"{module}.py") == SURFACE[module]


def test_no_module_of_the_kernel_is_left_out(source: Path) -> None:
    there = {f"kernel/{path.stem}" for path in (source / "queueyard" / "kernel").glob("*.py")}

    assert there == {module for module in SURFACE if module.startswith("kernel/")}
