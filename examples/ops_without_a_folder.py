"""Ops that a program makes itself, two writers, one conflict, and the change feed that tells what happened.

Run it anywhere: python examples/ops_without_a_folder.py
"""

from __future__ import annotations

import json
from pathlib import Path
import subprocess
import sys
import tempfile
from urllib.request import urlopen

from queueyard.ops import Ops, resume
from queueyard.ops.records import Op, OpType


def text(name: str, content: str, base_version: int) -> Op:
    return Op(
        op_id=f"{name}-{base_version + 1}",
        type=OpType.UPSERT,
        file_id=name,
        server_path=f"{name}.md",
        base_version=base_version,
        content=content,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "queueyard.ops.cli", "serve", "--port", "0", "--data", f"{folder}/server"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().split()[2].rstrip(",")
            ana, ben = (
                Ops.open(None, environment={"JOLLI_HOME": str(Path(folder, name))}, server=url)
                for name in ("ana", "ben")
            )

            ana.plan_ops([text("plan", "first", 0), text("list", "milk", 0)], message="two new texts")
            print(f"ana: {resume(ana).applied} applied")

            ana.plan_ops([text("plan", "second, by ana", 1)])
            ben.plan_ops([text("plan", "second, by ben", 1), text("list", "milk, bread", 1)])
            print(f"ana: {resume(ana).applied} applied")
            done = resume(ben)
            print(f"ben: {done.applied} applied, {done.conflicts} in conflict, nothing is overwritten")

            with urlopen(f"{url}/v1/sync/feed?content=true") as answer:
                for entry in json.load(answer)["entries"]:
                    print(
                        f"{entry['seq']}  {entry['op']}  {entry['serverPath']} v{entry['version']}: {entry['content']}"
                    )
            server.terminate()


if __name__ == "__main__":
    main()
