"""Four changes want to land on trunk; one of them is red, and trunk stays green."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queueyard.yard.scenes.stage import Stage

_CONFIG = 'user.name = "Ana"\nuser.email = "ana@example.com"\ngit.colocate = false\nui.color = "never"\n'
_CHANGES = {"greet": "green", "shout": "red", "wave": "green", "leave": "green"}


def show_jjq(stage: Stage) -> None:
    (stage.folder / "jj.toml").write_text(_CONFIG, encoding="utf-8")
    stage.say("A repository with a trunk, and a check that every merge has to pass.")
    stage.type("jj --quiet git init repo")
    repo = stage.folder / "repo"
    (repo / "base.txt").write_text("green\n", encoding="utf-8")
    stage.type("jj --quiet commit -m base", where="repo")
    stage.type("jj --quiet bookmark create main -r @-", where="repo")
    stage.type("jjq init --trunk main --check '! grep -q red *.txt'", where="repo", contains="initialized")
    for name, colour in _CHANGES.items():
        stage.type(f"jj --quiet new main -m 'qy-1: {name}'", where="repo")
        (repo / f"{name}.txt").write_text(f"{colour}\n", encoding="utf-8")
        stage.type("jjq push @", where="repo", contains="queued at")
    stage.say("All are checked, two at a time, and land in order; what fails is told why, and stops nobody.")
    stage.type("jjq run --all --jobs 2", where="repo", expect=1, contains="item 2 failed")
    stage.type("jjq status", where="repo", contains="qy-1: shout")
    there = stage.type("jj file list -r main", where="repo")
    stage.expect("shout.txt" not in there and "leave.txt" in there, "trunk is not what was checked")
    stage.type("jjq clean", where="repo")
    stage.type("queueyard add jjq repo", contains="added")
