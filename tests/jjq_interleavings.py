"""What users do while a check runs, and what trunk may be afterwards."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from jj_repositories import copy_of

if TYPE_CHECKING:
    from pathlib import Path

    from jj_repositories import Repository

KINDS = ("passes", "fails", "conflicts")

MODES = {
    "run": ("run",),
    "run --all": ("run", "--all"),
    "run --jobs": ("run", "--all", "--jobs", "3"),
    "run --batch": ("run", "--batch", "3"),
}

#: what happens once, during the first check of the item that it names; run by a shell in the user's workspace
MEDDLING = {
    "nothing": "",
    "amend the item": 'cd "$HOME/editor" && jj edit --quiet item-$JJQ_ITEM && echo more >> amended.txt && jj status',
    "reword the item": "jj --ignore-working-copy describe --quiet -m reworded item-$JJQ_ITEM",
    "amend the first item": 'cd "$HOME/editor" && jj edit --quiet item-1 && echo more >> amended.txt && jj status',
    "amend the last item": 'cd "$HOME/editor" && jj edit --quiet item-3 && echo more >> amended.txt && jj status',
    # Two who move it at the same instant leave it conflicted; a person sees that and says it again.
    "move trunk": "move() { jj --ignore-working-copy bookmark set --quiet --allow-backwards main -r by-hand; }; move; "
    "jj --ignore-working-copy log --no-graph -r main || move",
    "delete the item": "jj --ignore-working-copy bookmark delete --quiet jjq/queue/00000$JJQ_ITEM && "
    'echo $JJQ_ITEM > "$HOME/deleted"',
    "look around": "jj workspace list; jj log; jj status",
}

#: notes where trunk was before
_CHECK = """
meddle() {
  cd "$HOME/repo" && jj --ignore-working-copy log --no-graph -r main -T commit_id > "$HOME/trunk-before" &&
  sh -e "$HOME/meddle.sh"
}
if mkdir "$HOME/meddled-$JJQ_ITEM" 2>/dev/null && [ "$JJQ_ITEM" = "$(cat "$HOME/meddle-at")" ]
then (meddle) >"$HOME/meddling.log" 2>&1 || touch "$HOME/meddling-failed"
fi
cat *.txt | md5sum >> "$HOME/checked"
test ! -e bad
"""


def prepare(template: Path, folder: Path, kinds: tuple[str, ...]) -> Repository:
    """Three queued items of these kinds, each with a bookmark of its own, and another place for trunk."""
    repository = copy_of(template, folder)
    (folder / "check.sh").write_text(_CHECK, encoding="utf-8")
    repository.ok("config", "check_command", 'sh "$HOME/check.sh"')
    repository.change("by-hand")
    repository.jj("bookmark", "create", "--quiet", "by-hand", "-r", "@")
    for number, kind in enumerate(kinds, 1):
        files = {f"item{number}.txt": f"{number}\n"}
        files |= {"bad": f"{number}\n"} if kind == "fails" else {}
        files |= {"base.txt": f"{number}\n", "item-any.txt": f"{number}\n"} if kind == "conflicts" else {}
        change = repository.change(f"item {number}", files)
        repository.jj("bookmark", "create", "--quiet", f"item-{number}", "-r", change)
        repository.queue(change)
    repository.jj("new", "--quiet", "main")
    repository.jj("workspace", "add", "--quiet", "--name", "editor", "-r", "main", str(folder / "editor"))
    return repository


def meddle(repository: Repository, what: str, *, at: int) -> None:
    (repository.home / "meddle.sh").write_text(MEDDLING[what] or "true", encoding="utf-8")
    (repository.home / "meddle-at").write_text(str(at), encoding="utf-8")


def run_to_the_end(repository: Repository, mode: str) -> None:
    """A single run takes one item, and any run stops at a trunk that is conflicted: it is started again."""
    for _ in range(4):
        repository.jjq(*MODES[mode])
        _settle_trunk(repository)
        if not repository.bookmarks("glob:jjq/queue/*"):
            break


def broken_promises(repository: Repository) -> list[str]:
    """What is not as promised once all runs are over."""
    found = repository.violations()
    if (repository.home / "meddling-failed").exists():
        found.append("meddling failed: " + (repository.home / "meddling.log").read_text(encoding="utf-8"))
    if not _is_checked(repository):
        found.append(f"trunk was never checked: {repository.files()}")
    queued = repository.bookmarks("glob:jjq/queue/*")
    found += [f"{name} is still queued" for name in queued]
    held = {name.rpartition("/")[2] for name in repository.bookmarks("glob:jjq/failed/*")}
    for number in (1, 2, 3):
        # What had landed when a person moved trunk away from it has landed all the same.
        landed = repository.many(f"item-{number} & ::main") or _had_landed(repository, number)
        deleted = _was_deleted(repository, number)
        if deleted and landed:
            found.append(f"item {number} landed although it was deleted")
        if not deleted and not landed and f"00000{number}" not in held:
            found.append(f"item {number} is lost")
    return found


def _was_deleted(repository: Repository, number: int) -> bool:
    deleted = repository.home / "deleted"
    return deleted.exists() and deleted.read_text(encoding="utf-8").strip() == str(number)


def _had_landed(repository: Repository, number: int) -> list[str]:
    """The commit of an item that was on trunk before somebody meddled."""
    before = repository.home / "trunk-before"
    if not before.exists():
        return []
    return repository.many(f'description(exact:"item {number}\\n") & ::{before.read_text(encoding="utf-8")}')


def _settle_trunk(repository: Repository) -> None:
    """Who rewrites what has landed while the next item lands finds trunk conflicted, and takes one of its versions."""
    if len(repository.many("bookmarks(exact:main)")) > 1:
        repository.jj("--ignore-working-copy", "bookmark", "set", "main", "-r", "latest(bookmarks(exact:main))")
        (repository.home / "settled").write_text(repository.one("main"), encoding="utf-8")


def _put_there_by_hand(repository: Repository) -> bool:
    """Whether trunk is where a person moved it, or where it went when he rewrote something that had landed."""
    trunk = repository.one("main")
    if trunk in {repository.one("by-hand"), repository.one("root()+ & ::by-hand")}:
        return True
    settled = repository.home / "settled"
    if settled.exists() and settled.read_text(encoding="utf-8") == trunk:
        return True
    journal = (repository.private / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    landed = {event["data"]["merge"] for event in map(json.loads, journal) if event["kind"] == "succeeded"}
    words = ("evolog", "--ignore-working-copy", "--no-graph", "-r", "main", "-T", 'commit.commit_id() ++ "\\n"')
    _, *before = repository.jj(*words).splitlines()
    return bool(landed & set(before))


def _is_checked(repository: Repository) -> bool:
    if _put_there_by_hand(repository):
        return True
    names = sorted(name for name in repository.files() if name.endswith(".txt"))
    content = "".join(repository.file(name) for name in names)
    digest = hashlib.md5(content.encode()).hexdigest()
    checked = repository.home / "checked"
    return checked.exists() and f"{digest}  -" in checked.read_text(encoding="utf-8").splitlines()
