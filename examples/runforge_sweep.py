"""A sweep of twelve runs in two groups: some fail, only those are tried again, and the best one is found.

Run it anywhere: python examples/runforge_sweep.py
"""

from __future__ import annotations

import json
from pathlib import Path
import tempfile
from typing import Any

from queueyard.runforge import RunForge

# What is tuned; any program will do. It may leave its metrics in artifacts/metrics.json.
TRAIN = """
[ "$DEPTH" -lt 3 ] || [ -e more-memory ] || { echo "out of memory at depth $DEPTH" >&2; exit 1; }
mkdir -p "$RUNFORGE_RUN_DIR/artifacts"
echo "{\\"accuracy\\": 0.$DEPTH$RATE}" > "$RUNFORGE_RUN_DIR/artifacts/metrics.json"
"""


def plan(name: str, rates: list[int]) -> dict[str, Any]:
    return {
        "group": {"name": name},
        "base_request": {"version": 1, "command": ["sh", "-c", TRAIN]},
        "strategy": {
            "type": "grid",
            "parameters": [{"path": "env.DEPTH", "values": [1, 2, 3]}, {"path": "env.RATE", "values": rates}],
        },
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        forge = RunForge.open(workspace)
        slow = forge.enqueue_sweep(plan("slow", [1, 2]))[0].group_id or ""
        fast = forge.enqueue_sweep(plan("fast", [7, 8]))[0].group_id or ""

        with forge.daemon(max_parallel=2):
            for group in (slow, fast):
                print(group.rpartition("_")[2], forge.wait(group, timeout_s=60))

            (workspace / "more-memory").touch()
            for group in (slow, fast):
                print(f"{len(forge.retry_failed(group))} runs are tried again")
                print(group.rpartition("_")[2], forge.wait(group, timeout_s=60))

        summary = json.loads(forge.workspace.group_file(fast).read_bytes())["summary"]
        print(f"best of fast: {summary['best_primary_metric']}")


if __name__ == "__main__":
    main()
