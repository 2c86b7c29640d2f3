"""What is different in jj 0.35, played by a stand-in around the real jj: jjq works with it all the same.

The stand-in refuses what 0.35 does not have, and fails where 0.35 fails and newer versions only warn.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

OLD_JJ = """#!/bin/sh
refuse() {{ echo "Error: $1" >&2; exit 2; }}

# refuse_missing COMMAND NAME...: fails unless all of the names are listed by `jj COMMAND list`
refuse_missing() {{
    listed=$({jj} --ignore-working-copy "$1" list -T 'name ++ " "')
    kind=$1
    shift
    for name in "$@"
    do case " $listed" in *" $name "*) ;; *) refuse "No such $kind: $name" ;; esac
    done
}}

case " $* " in *" --version "*) echo "jj 0.35.0"; exit ;; esac
case " $* " in
    *" -r "* | *" --to "*) ;;
    *conflicted_files* | *--onto* | *"workspace root --name"* | *'exact:"'* | *'glob:"'*) refuse "not known" ;;
esac
case " $* " in
    *" workspace add "*)
        case " $* " in *" -m "* | *" --message "*) refuse "unexpected argument '-m' found" ;; esac
        for last in "$@"; do :; done
        [ -e "$last" ] && refuse "Destination path exists" ;;
    *" bookmark delete "*) refuse_missing bookmark $(echo "$*" | sed 's/.* delete //') ;;
    *" workspace forget "*) refuse_missing workspace $(echo "$*" | sed 's/.* forget //') ;;
    *" bookmark move "*)
        said=$({jj} "$@" 2>&1)
        code=$?
        echo "$said" >&2
        case "$said" in *"No bookmarks to update"*) exit 1 ;; esac
        exit $code ;;
esac
exec {jj} "$@"
"""


@pytest.fixture
def old(fresh: Repository, jj: str) -> Repository:
    folder = fresh.home / "old"
    folder.mkdir()
    (folder / "jj").write_text(OLD_JJ.format(jj=shlex.quote(jj)), encoding="utf-8")
    (folder / "jj").chmod(0o755)
    fresh.environment["PATH"] = f"{folder}{os.pathsep}{fresh.variables['PATH']}"
    fresh.ok("config", "check_command", "test ! -e bad")
    return fresh


def test_the_stand_in_is_what_is_asked(old: Repository) -> None:
    assert old.jjq("doctor").stderr == "jjq: Everything is well.\n"
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
