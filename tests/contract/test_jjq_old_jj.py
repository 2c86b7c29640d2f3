"""What is different in jj 0.35, played by a stand-in around the real jj: jjq works with it all the same.

The stand-in refuses what 0.35 does not have, and fails where 0.35 fails and newer versions only warn.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

OLD_JJ = """#!{python}
import subprocess, sys
from pathlib import Path
JJ, words = {jj!r}, sys.argv[1:]
text = " ".join(words)

def refuse(why):
    sys.stderr.write("Error: " + why + "\\n")
    sys.exit(2)

def listed(*command):
    template = 'name ++ "\\n"'
    return subprocess.check_output([JJ, "--ignore-working-copy", *command, "-T", template], text=True).split()

if "--version" in words:
    print("jj 0.35.0")
    sys.exit()
if "workspace" in words and "add" in words:
    if "-m" in words or "--message" in words:
        refuse("unexpected argument '-m' found")
    if Path(words[-1]).exists():
        refuse("Destination path exists")
for word in ("conflicted_files", "--onto", "workspace root --name", 'exact:"', 'glob:"'):
    if word in text and "-r" not in words and "--to" not in words:
        refuse(word + " is not known")
if "bookmark" in words and "delete" in words:
    if not set(words[words.index("delete") + 1 :]) <= set(listed("bookmark", "list")):
        refuse("No such bookmark")
if "workspace" in words and "forget" in words:
    if not set(words[words.index("forget") + 1 :]) <= set(listed("workspace", "list")):
        refuse("No such workspace")
done = subprocess.run([JJ, *words], capture_output=True)
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
if "bookmark" in words and "move" in words and b"No bookmarks to update" in done.stderr:
    sys.exit(1)
sys.exit(done.returncode)
"""


@pytest.fixture
def old(fresh: Repository, jj: str) -> Repository:
    folder = fresh.home / "old"
    folder.mkdir()
    (folder / "jj").write_text(OLD_JJ.format(python=sys.executable, jj=jj), encoding="utf-8")
    (folder / "jj").chmod(0o755)
    fresh.environment["PATH"] = f"{folder}{os.pathsep}{fresh.variables['PATH']}"
    fresh.ok("config", "check_command", "test ! -e bad")
    return fresh


def test_the_stand_in_is_what_is_asked(old: Repository) -> None:
    assert old.ok("doctor") == "jjq: everything is well\n"
    assert '"version":"jj 0.35"' in (old.private / "jj-version.json").read_text(encoding="utf-8")


def test_items_land_fail_and_conflict(old: Repository) -> None:
    old.push("good")
    old.push("broken", {"bad": "x\n"})
    old.push("clash", {"good.txt": "other\n"})

    assert [old.jjq("run").code for _ in range(3)] == [0, 1, 1]

    assert old.files() == ["base.txt", "good.txt"]
    assert old.one("main", "description.first_line()") == "merge 1: good"
    assert sorted(old.bookmarks("glob:jjq/failed/*")) == ["jjq/failed/000002", "jjq/failed/000003"]
    assert old.json("status", "3")["failed"]["conflict_paths"] == ["good.txt"]
    assert old.violations() == []


def test_the_whole_queue_lands_in_parallel(old: Repository) -> None:
    for name in ("a", "b", "c"):
        old.push(name)

    old.ok("run", "--all", "--jobs", "2")

    assert old.files() == ["a.txt", "b.txt", "base.txt", "c.txt"]
    assert old.violations() == []


def test_failed_items_are_retried_deleted_and_cleaned(old: Repository) -> None:
    old.push("broken", {"bad": "x\n"})
    old.jjq("run")

    old.ok("retry", "1")
    old.ok("delete", "2")
    old.ok("clean")

    assert list(old.bookmarks()) == ["jjq/_/_"]
    assert old.workspaces() == ["default"]


def test_a_bookmark_of_ours_that_somebody_deletes_meanwhile_is_no_error(old: Repository) -> None:
    old.ok("config", "check_command", "jj --ignore-working-copy bookmark delete jjq/lock/run")
    old.push("good")

    answer = old.jjq("run")

    assert (answer.code, answer.stderr) == (0, "")


def test_a_trunk_with_an_odd_name_is_found(old: Repository) -> None:
    old.jj("bookmark", "create", "trunk-1.x", "-r", "main")
    old.ok("config", "trunk_bookmark", "trunk-1.x")
    old.push("good")

    old.ok("run")

    assert old.files('"trunk-1.x"') == ["base.txt", "good.txt"]
