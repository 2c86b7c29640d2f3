"""Situations in which a jjq command may die, and what must be true once the next command has run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import hashlib
from typing import TYPE_CHECKING

from jj_repositories import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jj_repositories import Repository
    from scripts import Answer

#: notes the content that it looks at, and passes unless there is a file named `bad`
CHECK = 'cat *.txt | md5sum >> "$HOME/checked"; test ! -e bad'


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A prepared repository and the command that will die in it."""

    name: str
    words: tuple[str, ...]
    #: names of items that are queued before, in order; `broken` fails its check, `clash` conflicts with the one before
    items: tuple[str, ...] = ()
    #: how many of them are run before
    run_first: int = 0
    #: whether the command itself queues a further revision, named `new`
    pushes: bool = False
    #: whether jjq was used before
    is_new: bool = False


SCENARIOS = {
    one.name: one
    for one in (
        Scenario(name="first push", words=("push", "new"), pushes=True, is_new=True),
        Scenario(name="push", words=("push", "new"), items=("a",), pushes=True),
        Scenario(name="run, landing", words=("run",), items=("a", "b")),
        Scenario(name="run, failing", words=("run",), items=("broken", "b")),
        Scenario(name="run, conflicting", words=("run",), items=("a", "clash"), run_first=1),
        Scenario(name="run --all", words=("run", "--all"), items=("a", "broken", "b")),
        Scenario(name="run --jobs", words=("run", "--all", "--jobs", "3"), items=("a", "broken", "b", "clash")),
        Scenario(name="run --batch", words=("run", "--batch", "3"), items=("a", "broken", "b")),
        Scenario(name="retry", words=("retry", "1"), items=("broken", "b"), run_first=1),
        Scenario(name="delete", words=("delete", "1"), items=("a", "b")),
        Scenario(name="config", words=("config", "max_failures", "9"), items=("a",)),
        Scenario(name="clean", words=("clean",), items=("broken", "b"), run_first=1),
    )
}


def prepare(scenario: Scenario, template: Path, folder: Path) -> Repository:
    """The repository of a scenario, before its command."""
    repository = copy_of(template, folder)
    if not scenario.is_new:
        repository.ok("config", "check_command", CHECK)
    for name in scenario.items:
        files = {f"{name}.txt": f"{name}\n"}
        files |= {"bad": "x\n"} if name == "broken" else {}
        files |= {"a.txt": "not a\n"} if name == "clash" else {}
        change = repository.change(name, files)
        repository.jj("bookmark", "create", "--quiet", name, "-r", change)
        repository.queue(change)
    for _ in range(scenario.run_first):
        repository.jjq("run")
    if scenario.pushes:
        change = repository.change("new")
        repository.jj("bookmark", "create", "--quiet", "new", "-r", change)
    return repository


def die(scenario: Scenario, prepared: Path, folder: Path, *, at: int | str, after: bool) -> tuple[Repository, Answer]:
    """A copy of a prepared repository in which the command dies at a call, if it makes that call."""
    repository = copy_of(prepared, folder)
    return repository, repository.kill(*scenario.words, at=at, after=after)


#: what may come next; each has to put things in order
NEXT: dict[str, Callable[[Repository], object]] = {
    "status": lambda repository: repository.jjq("status"),
    "push": lambda repository: repository.jjq("push", "main"),
    "run": lambda repository: repository.jjq("run"),
    "config": lambda repository: repository.jjq("config", "max_failures", "4"),
    "delete": lambda repository: repository.jjq("delete", "999"),
}


def broken_promises(scenario: Scenario, repository: Repository) -> list[str]:
    """What is not as promised, asked with raw jj, after a death and one more command."""
    found = repository.violations()
    found += _lost(scenario, repository)
    twice = _failed_candidates(repository) & set(repository.bookmarks("glob:jjq/queue/*").values())
    found += [f"{repository.one(commit, 'description.first_line()')} is failed and queued again" for commit in twice]
    merged = Counter(
        line.removeprefix("jjq-sequence: ")
        for line in repository.one("::main", "description").splitlines()
        if line.startswith("jjq-sequence: ")
    )
    found += [f"item {number} landed {count} times" for number, count in merged.items() if count > 1]
    landed = {f"{int(number):06}" for number in merged}
    still = {name.rpartition("/")[2] for name in repository.bookmarks("glob:jjq/queue/*")}
    found += [f"item {number} landed and is queued" for number in landed & still]
    if not _trunk_was_checked(repository):
        found.append(f"trunk was never checked: {repository.files()}")
    return found


def _lost(scenario: Scenario, repository: Repository) -> list[str]:
    held = set(repository.bookmarks("glob:jjq/queue/*").values())
    held |= _failed_candidates(repository)
    landed = set(repository.many("::main"))
    deleted = {"a"} if scenario.words[0] == "delete" else set()
    items = {name: repository.one(f'bookmarks(exact:"{name}")') for name in scenario.items if name not in deleted}
    return [f"{name} is lost" for name, commit in items.items() if commit not in held | landed]


def _failed_candidates(repository: Repository) -> set[str]:
    template = 'parents.map(|p| p.commit_id()).join(" ")'
    found: set[str] = set()
    for name in repository.bookmarks("glob:jjq/failed/*"):
        found |= set(repository.one(f'bookmarks(exact:"{name}")', template).split()[1:])
    return found


def _trunk_was_checked(repository: Repository) -> bool:
    names = [name for name in repository.files() if name.endswith(".txt")]
    if names == ["base.txt"]:
        return True
    content = "".join(repository.file(name) for name in sorted(names))
    digest = hashlib.md5(content.encode()).hexdigest()
    checked = repository.home / "checked"
    return checked.exists() and f"{digest}  -" in checked.read_text(encoding="utf-8").splitlines()
