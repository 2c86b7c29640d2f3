"""What `from queueyard.ops import ...` gives, whatever was imported before."""

from __future__ import annotations

import importlib
from pathlib import Path

import queueyard.ops


def test_every_offered_name_can_be_called_also_when_all_files_are_imported() -> None:
    for path in Path(queueyard.ops.__path__[0]).glob("*.py"):
        importlib.import_module(f"queueyard.ops.{path.stem}")

    assert [name for name in queueyard.ops.__all__ if not callable(getattr(queueyard.ops, name))] == []
