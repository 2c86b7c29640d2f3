"""A yard in a folder of its own, with real systems in it, for the tests of `queueyard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts import Answer, run_script, start_script

if TYPE_CHECKING:
    import subprocess

    from servers import Server


class YardFolder:
    """One yard; its places stand below its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def queueyard(self, *words: str, cwd: Path | None = None, **environment: str) -> Answer:
        return run_script("queueyard", *words, cwd=cwd or self.root, **environment)

    def ok(self, *words: str, **environment: str) -> str:
        answer = self.queueyard(*words, cwd=None, **environment)
        assert answer.code == 0, answer
        return answer.stdout

    def json(self, *words: str, **environment: str) -> Any:
        return json.loads(self.ok(*words, "--json", **environment))

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return start_script("queueyard", *words, cwd=self.root, **environment)

    # --- systems -----------------------------------------------------------------------------------------------------

    def add_queen(self, *issues: str) -> Path:
        """A repository with open issues, in the root of the yard."""
        (self.root / ".beads").mkdir()
        lines = [json.dumps({"id": one, "title": f"about {one}", "status": "open"}) + "\n" for one in issues]
        (self.root / ".beads" / "issues.jsonl").write_text("".join(lines), encoding="utf-8")
        return self.root

    def queen(self, agent: str, *words: str) -> str:
        answer = run_script("queen", *words, cwd=self.root, QUEEN_AGENT=agent)
        assert answer.code == 0, answer
        return answer.stdout

    def add_sweep(self, name: str, script: str, numbers: list[int], *, folder: str = "lab") -> str:
        """Queue a run per number, in a workspace that is added to the yard; the id of their group."""
        lab = self.root / folder
        (lab / ".runforge").mkdir(parents=True, exist_ok=True)
        plan = {
            "version": 1,
            "kind": "sweep_plan",
            "workspace": ".",
            "group": {"name": name},
            "base_request": {"version": 1, "command": ["sh", "-c", script]},
            "strategy": {"type": "grid", "parameters": [{"path": "env.NUMBER", "values": numbers}]},
        }
        (lab / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        self.ok("add", "runforge", folder)
        answer = run_script("runforge-cli", "enqueue-sweep", "--plan", "plan.json", "--json", cwd=lab)
        assert answer.code == 0, answer
        group: str = answer.json["group_id"]
        return group

    def runforge(self, *words: str, folder: str = "lab") -> Answer:
        return run_script("runforge-cli", *words, cwd=self.root / folder)

    def add_server(self, server: Server) -> str:
        self.ok("add", "panqueue", server.url)
        return server.url

    def panqueue(self, server: Server, *words: str) -> str:
        answer = run_script("panqueue", *words, "--url", server.url, cwd=self.root)
        assert answer.code == 0, answer
        return answer.stdout

    def glance(self, system: str) -> dict[str, Any]:
        """What `status` says of the only place of a system."""
        [found] = [one for one in self.json("status") if one["system"] == system]
        told: dict[str, Any] = found
        return told


def processes_in(folder: Path) -> list[str]:
    """Command lines of processes that stand in the folder or name it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            stands_in = str((process / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in command or stands_in.startswith(str(folder)):
            found.append(command)
    return found
