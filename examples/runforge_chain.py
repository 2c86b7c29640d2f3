"""Runs that wait for each other, one that is tried again, and what the queue tells about them afterwards.

Run it anywhere: python examples/runforge_chain.py
"""

from __future__ import annotations

import json
from pathlib import Path
import tempfile

from queueyard.runforge import RunForge


def make_run(workspace: Path, run_id: str, script: str) -> None:
    """A run is a folder with a request."""
    folder = workspace / ".ml" / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps({"version": 1, "command": ["sh", "-c", script]}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        make_run(workspace, "fetch", 'echo "attempt $RUNFORGE_ATTEMPT"; [ "$RUNFORGE_ATTEMPT" = 2 ] && echo 42 > data')
        make_run(workspace, "train", "cat data > model")
        make_run(workspace, "report", 'echo "the model says $(cat model)"')
        forge = RunForge.open(workspace)

        fetch = forge.enqueue_run("fetch", retries=1)
        train = forge.enqueue_run("train", after=[fetch.job_id], timeout_s=60)
        report = forge.enqueue_run("report", after=[train.job_id])
        with forge.daemon():
            forge.wait(report.job_id, timeout_s=60)

        for job in forge.jobs():
            print(f"{job.run_id}: {job.state} in attempt {job.attempt}")
        print(forge.log_path("report").read_text(), end="")


if __name__ == "__main__":
    main()
