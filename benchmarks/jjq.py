"""jjq with a real jj: what parallel checks save, what an item costs, and how many calls to jj each command makes.

    python benchmarks/jjq.py [ITEMS]

The check sleeps, so it is not the cores that are measured; two are enough. The figures with a target are what was
promised when jjq was planned.
"""

from __future__ import annotations

from collections import Counter
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from measuring import finish, interleaved, report

ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 12
JOBS = 4
CHECK_S = 2
ROUNDS = 3
CONFIG = 'user.name = "Bench"\nuser.email = "bench@example.com"\ngit.colocate = false\n'


class Yard:
    """A throw-away repository."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.root = folder / "repo"
        self.trace = folder / "trace"
        self.environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(folder),
            "JJ_CONFIG": str(folder / "jj.toml"),
            "TMPDIR": str(folder / "tmp"),
        }

    @classmethod
    def new(cls, folder: Path, *, check: str) -> Yard:
        yard = cls(folder)
        (folder / "tmp").mkdir(parents=True)
        (folder / "jj.toml").write_text(CONFIG, encoding="utf-8")
        yard.call("jj", "git", "init", "--quiet", str(yard.root), cwd=folder)
        (yard.root / "base.txt").write_text("base\n", encoding="utf-8")
        yard.call("jj", "commit", "--quiet", "-m", "base")
        yard.call("jj", "bookmark", "create", "--quiet", "main", "-r", "@-")
        yard.call("jjq", "config", "check_command", check)
        return yard

    def again(self) -> Yard:
        """A copy, as it was before anything ran."""
        return Yard(Path(shutil.copytree(self.home, Path(tempfile.mkdtemp(dir=self.home.parent)) / "yard")))

    def push(self, name: str, *, bad: bool = False) -> None:
        self.call("jj", "new", "--quiet", "main", "-m", name)
        (self.root / f"{name}.txt").write_text(name, encoding="utf-8")
        if bad:
            (self.root / "bad").touch()
        self.call("jjq", "push", "@")

    def call(self, *words: str, cwd: Path | None = None, code: int = 0, traced: bool = False) -> None:
        environment = self.environment | ({"JJQ_TRACE": str(self.trace)} if traced else {})
        done = subprocess.run(list(words), cwd=cwd or self.root, env=environment, capture_output=True, check=False)
        if done.returncode != code:
            sys.exit(f"{words} ended with {done.returncode}: {done.stderr.decode()}")

    def checks_of_each(self, *words: str) -> Counter[int]:
        """Item -> how often its check was begun by a failing run."""
        self.call(*words, code=1)
        journal = self.root / ".jj" / "repo" / "jjq" / "journal.jsonl"
        events = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
        return Counter(int(event["item"]) for event in events if event["kind"] == "started")

    def count(self, *words: str) -> list[list[str]]:
        """The calls to jj that a command makes."""
        self.trace.unlink(missing_ok=True)
        self.call(*words, traced=True)
        return [json.loads(line)["call"] for line in self.trace.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    if shutil.which("jj") is None:
        sys.exit("jj is not on the PATH: python tools/fetch_parts.py jj")
    folder = Path(tempfile.mkdtemp(prefix="jjq-bench-"))
    try:
        parallel(folder)
        overhead(folder)
    finally:
        shutil.rmtree(folder)
    finish()


def parallel(folder: Path) -> None:
    """The same queue, one after the other, in parallel, in batches, and with one bad item in the middle."""
    bad_one = ITEMS // 2 + 1
    good, bad = (Yard.new(folder / name, check=f"sleep {CHECK_S}; test ! -e bad") for name in ("good", "bad"))
    for number in range(1, ITEMS + 1):
        good.push(f"item-{number}")
        bad.push(f"item-{number}", bad=number == bad_one)
    taken = interleaved(
        {
            "one by one": lambda: good.again().call("jjq", "run", "--all"),
            "at once": lambda: good.again().call("jjq", "run", "--all", "--jobs", str(JOBS)),
            "with bad": lambda: bad.again().call("jjq", "run", "--all", "--jobs", str(JOBS), code=1),
            "batch": lambda: good.again().call("jjq", "run", "--batch", str(ITEMS)),
            "bisected": lambda: bad.again().call("jjq", "run", "--batch", str(ITEMS), code=1),
        },
        rounds=ROUNDS,
    )
    report(f"{ITEMS} items, check of {CHECK_S} s, one by one", taken["one by one"], "s")
    report(f"{ITEMS} items, --jobs {JOBS}", taken["at once"], "s")
    ratio = taken["at once"] / taken["one by one"]
    report(f"--jobs {JOBS} against one by one", ratio, "of the time", at_most=0.4)
    report(f"--jobs {JOBS}, one bad item in the middle", taken["with bad"], "s")
    report("the bad item costs", (taken["with bad"] - taken["at once"]) / CHECK_S, "checks of time", at_most=1.5)
    begun = bad.again().checks_of_each("jjq", "run", "--all", "--jobs", str(JOBS))
    ahead = sum(begun[number] - 1 for number in range(1, bad_one + 1))
    behind = sum(begun[number] - 1 for number in range(bad_one + 1, ITEMS + 1))
    report("checks repeated of the bad item and those ahead of it", ahead, "checks", at_most=0)
    report("checks repeated of those behind it", behind, "checks", at_most=JOBS - 1)
    report(f"--batch {ITEMS}", taken["batch"], "s")
    report(f"--batch {ITEMS}, one bad item in the middle", taken["bisected"], "s")


def overhead(folder: Path) -> None:
    """Without the check: calls and time of each command."""
    yard = Yard.new(folder / "calls", check="true")
    for number in range(3):
        yard.push(f"warm-{number}")
    report("calls of status", len(yard.count("jjq", "status")), "calls", at_most=3)
    report("calls of push", len(yard.count("jjq", "push", "main")), "calls", at_most=8)
    report("calls of a landed item, run", len(yard.count("jjq", "run")), "calls", at_most=12)
    yard.call("jjq", "run", "--all")
    for number in range(10):
        yard.push(f"item-{number}")
    calls = len(yard.count("jjq", "run", "--all"))
    report("calls of a landed item, run --all of 10", calls / 10, "calls", at_most=12)
    alone = Yard.new(folder / "alone", check="true")
    rounds = 5
    for number in range(rounds):
        alone.push(f"item-{number}")
    taken = interleaved(
        {
            "run": lambda: alone.call("jjq", "run"),
            "push": lambda: alone.call("jjq", "push", "@"),
            "status": lambda: alone.call("jjq", "status"),
            "jj": lambda: alone.call("jj", "log", "-r", "main"),
        },
        rounds=rounds,
    )
    report("a landed item without its check, run", taken["run"], "s", at_most=0.8)
    report("the same", taken["run"] / taken["jj"], "times one jj log")
    report("push", taken["push"], "s")
    report("status", taken["status"], "s")
    report("for comparison: one jj log", taken["jj"], "s")


if __name__ == "__main__":
    main()
