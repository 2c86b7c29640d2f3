"""Four changes are queued in a throw-away jj repository, one of them red; the other three land.

Run it anywhere where jj is on the PATH: python examples/jjq_four_changes.py
"""

from __future__ import annotations

import os
from pathlib import Path
import shutil
import subprocess
import tempfile

from queueyard.jjq import Jjq
from queueyard.jjq.parallel import run_all
from queueyard.jjq.records import State
from queueyard.jjq.worker import Silent
from queueyard.kernel.lifecycle import Lifecycle

CONFIG = 'user.name = "Ana"\nuser.email = "ana@example.com"\ngit.colocate = false\n'
CHANGES = {"greet": "green\n", "shout": "red\n", "wave": "green\n", "leave": "green\n"}


def main() -> None:
    if shutil.which("jj") is None:
        print("jj is not on the PATH, so there is nothing to show.")
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jj.toml").write_text(CONFIG, encoding="utf-8")
        environment = os.environ | {"JJ_CONFIG": str(Path(folder) / "jj.toml")}
        repository = make_repository(Path(folder) / "repo", environment)

        queue = Jjq.open(repository, environment=environment)
        queue.init(trunk="main", check="! grep -q red *.txt")
        for name, content in CHANGES.items():
            jj(repository, environment, "new", "main", "-m", name)
            (repository / f"{name}.txt").write_text(content, encoding="utf-8")
            queue.push("@")

        outcomes = run_all(queue.store, Silent(), Lifecycle(), jobs=2)
        for outcome in outcomes:
            print(f"item {outcome.id} ({outcome.candidate.subject}): {outcome.state}")
        landed = sum(outcome.state is State.LANDED for outcome in outcomes)
        print(f"{landed} landed, {len(outcomes) - landed} failed")
        queue.clean()


def make_repository(folder: Path, environment: dict[str, str]) -> Path:
    folder.mkdir()
    jj(folder, environment, "git", "init", ".")
    (folder / "base.txt").write_text("green\n", encoding="utf-8")
    jj(folder, environment, "commit", "-m", "base")
    jj(folder, environment, "bookmark", "create", "main", "-r", "@-")
    return folder


def jj(folder: Path, environment: dict[str, str], *words: str) -> None:
    subprocess.run(["jj", "--quiet", *words], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main()
