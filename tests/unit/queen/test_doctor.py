from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from queueyard.queen import index as index_module
from queueyard.queen import messages
from queueyard.queen.doctor import examine
from queueyard.queen.idx_json import IDX_NAME, export
from queueyard.queen.records import LONGEST_LINE_BYTES
from queueyard.queen.store import ARCHIVE, ASSIGNMENTS, MESSAGES, RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queueyard.kernel.findings import Finding
    from queueyard.queen import Queen
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

NEVER = "2030-01-01T00:00:00Z"


@pytest.fixture
def queen(queen_of: Callable[[str], Queen]) -> Queen:
    return queen_of("ui")


def checks(found: list[Finding]) -> list[str]:
    return [finding.check for finding in found]


def files_of(home: Home) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}


def test_an_empty_repository_is_well(queen: Queen) -> None:
    assert examine(queen) == []


def test_ordinary_use_leaves_nothing_to_find(queen: Queen) -> None:
    queen.send("api", "text")
    queen.reserve(["src/**"])
    queen.reserve(["src/a"], shared=True)

    assert examine(queen) == []


def test_looking_changes_nothing(queen: Queen, home: Home, write: Writer) -> None:
    write(MESSAGES, b"no json\n", {"id": "qm-1", "to": "ui"})
    write(ASSIGNMENTS, *({"id": f"qa-{agent}", "issue_id": "qb-1", "agent": agent} for agent in ("ui", "api")))
    (home.root / ".git").mkdir()
    (home.beads / IDX_NAME).write_text("{}")
    before = files_of(home)

    found = examine(queen)

    assert len(found) == 4
    assert not any(finding.fixed for finding in found)
    assert files_of(home) == before


@pytest.mark.parametrize("name", [MESSAGES, ASSIGNMENTS, RESERVATIONS])
def test_lines_that_nobody_can_read_are_set_aside(queen: Queen, home: Home, write: Writer, name: str) -> None:
    good = [b'{"id":"x-1","status":"released"}\n', b'{"_migration":"v2"}\n', b'{"id":"x-2","status":"released"}\n']
    path = write(name, good[0], b"no json\n", b"\n", b"[]\n", *good[1:], b'{"id":"x-3')

    [finding] = examine(queen)
    [fixed] = examine(queen, fix=True)

    assert (finding.check, finding.fixable, finding.fixed) == ("unreadable lines", True, False)
    assert f"{path}: line 2 (byte {len(good[0])})" in finding.problem
    assert "and 2 more" in finding.problem
    assert fixed.fixed
    assert path.read_bytes() == b"".join(good)
    aside = home.beads / ARCHIVE / f"{path.stem}-unreadable.txt"
    assert aside.read_bytes() == b'no json\n[]\n{"id":"x-3\n'
    assert examine(queen) == []


def test_a_torn_last_line_is_called_so(queen: Queen, write: Writer) -> None:
    write(MESSAGES, {"id": "qm-1"}, b'{"id":')

    [finding] = examine(queen)

    assert "line 2" in finding.problem
    assert "torn last line" in finding.problem


def test_a_record_with_a_value_of_the_wrong_type_is_told_and_stays(queen: Queen, write: Writer) -> None:
    path = write(MESSAGES, {"id": "qm-1", "to": "ui"}, {"id": "qm-1", "read": "yes"})
    before = path.read_bytes()

    [finding] = examine(queen, fix=True)

    assert (finding.check, finding.fixed) == ("misfits", False)
    assert "line 2" in finding.problem
    assert path.read_bytes() == before


def test_a_line_that_stops_other_tools_is_told(queen: Queen, write: Writer) -> None:
    write(MESSAGES, {"id": "qm-1", "to": "ui"}, {"id": "qm-2", "to": "ui", "body": "x" * LONGEST_LINE_BYTES})

    [finding] = examine(queen)

    assert (finding.check, finding.fixable) == ("long lines", False)
    assert "line 2" in finding.problem


def test_of_two_holders_of_an_issue_the_later_one_is_released(queen: Queen, write: Writer) -> None:
    write(
        ASSIGNMENTS,
        {"id": "qa-1", "issue_id": "qb-1", "agent": "ui", "status": "active"},
        {"id": "qa-2", "issue_id": "qb-1", "droid": "api", "status": "active", "their": 1},
    )

    [finding] = examine(queen, fix=True)

    assert (finding.check, finding.fixed) == ("double assignments", True)
    assert "qb-1 is also active for api" in finding.problem
    assert examine(queen) == []
    assert [one.id for one in queen.assignments(status="active")] == ["qa-1"]
    [released] = queen.assignments(status="released")
    assert (released.agent, released.droid) == ("api", "api")
    assert queen.store.assignments.raw("qa-2")["their"] == 1


def test_work_on_an_issue_that_is_closed_is_told(queen: Queen, write: Writer) -> None:
    write("issues.jsonl", {"id": "qb-1", "status": "closed"}, {"id": "qb-2"})
    write(ASSIGNMENTS, *({"id": f"qa-{n}", "issue_id": f"qb-{n}", "agent": "api"} for n in (1, 2)))

    [finding] = examine(queen)

    assert finding.check == "closed issues"
    assert finding.advice == "queen complete qb-1 --agent api"


def test_two_who_hold_the_same_files_are_told_and_shared_use_is_not(queen: Queen, write: Writer) -> None:
    write(
        RESERVATIONS,
        {"id": "qr-1", "pattern": "src/**", "agent": "ui", "expires_at": NEVER},
        {"id": "qr-2", "pattern": "src/a", "agent": "api", "expires_at": NEVER},
        {"id": "qr-3", "pattern": "src/a", "agent": "docs", "expires_at": NEVER, "exclusive": False},
    )

    [finding] = examine(queen)

    assert finding.check == "conflicts"
    assert finding.problem in {
        "ui and api both hold src/a exclusively",
        "api and ui both hold src/a exclusively",
    }


def test_a_pattern_that_can_match_nothing_is_told(queen: Queen, write: Writer) -> None:
    write(RESERVATIONS, {"id": "qr-1", "pattern": "../up", "agent": "api", "expires_at": NEVER})

    [finding] = examine(queen)

    assert finding.check == "patterns"
    assert "queen unreserve qr-1 --agent api" in finding.advice


def test_an_index_that_leads_to_the_wrong_place_is_found_and_built_anew(
    queen: Queen, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody edited a name in place, between two samples, and somebody else appended afterwards."""
    monkeypatch.setattr(index_module, "_TAIL_BYTES", 1)
    path = write(MESSAGES, *({"id": f"qm-{n}", "to": "ui", "body": "x" * 200} for n in range(100)))
    messages.inbox(queen.store, agent="ui")
    content = path.read_bytes()
    place = content.index(b'"qm-33","to":"ui"') + len(b'"qm-33","to":"')
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(b"me")
    monkeypatch.setattr(index_module, "_TAIL_BYTES", 1_000_000)
    write(MESSAGES, {"id": "qm-100", "to": "ui"})
    hidden = messages.inbox(queen.store, agent="me")

    [finding] = examine(queen, fix=True)

    assert hidden == []
    assert (finding.check, finding.fixed) == ("index", True)
    assert "wrong about 1 messages, for example qm-33" in finding.problem
    assert [one.id for one in messages.inbox(queen.store, agent="me")] == ["qm-33"]
    assert examine(queen) == []


@pytest.mark.parametrize("content", [b"{}", b"no json", b'{"by_id":{},"by_to":{},"by_issue":{},"by_thread":{}}'])
def test_an_exported_index_that_does_not_fit_is_written_anew(
    queen: Queen, home: Home, write: Writer, content: bytes
) -> None:
    write(MESSAGES, {"id": "qm-1", "to": "ui"})
    (home.beads / IDX_NAME).write_bytes(content)

    [finding] = examine(queen, fix=True)

    assert (finding.check, finding.fixed) == ("exported index", True)
    assert examine(queen) == []


def test_an_exported_index_that_fits_is_well(queen: Queen, write: Writer) -> None:
    write(MESSAGES, {"id": "qm-1", "to": "ui"})
    export(queen.store)

    assert examine(queen) == []


# --- git attributes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        ".beads/queen_*.jsonl merge=union\n",
        ".beads/queen_messages.jsonl text merge=union\n",
        "# all\n*.md text\n.beads/queen_* merge=union",
    ],
)
def test_files_that_git_merges_as_a_union_are_well(queen: Queen, home: Home, text: str) -> None:
    (home.root / ".git").mkdir()
    (home.root / ".gitattributes").write_text(text)

    assert examine(queen) == []


@pytest.mark.parametrize("text", [None, "", "*.md text", "# .beads/queen_*.jsonl merge=union\n", "*.txt merge=union\n"])
def test_a_missing_attribute_is_added_and_the_rest_kept(queen: Queen, home: Home, text: str | None) -> None:
    (home.root / ".git").mkdir()
    path = home.root / ".gitattributes"
    if text is not None:
        path.write_text(text)

    [finding] = examine(queen, fix=True)

    kept = [line for line in (text or "").splitlines() if line]
    assert (finding.check, finding.fixed) == ("git attributes", True)
    assert path.read_text().splitlines() == [*kept, ".beads/queen_*.jsonl merge=union"]
    assert examine(queen) == []


def test_with_the_attribute_git_merges_two_branches_that_both_appended(
    queen_of: Callable[[str], Queen], home: Home
) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=ui", "-c", "user.email=ui@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=home.root, check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    queen = queen_of("ui")
    examine(queen, fix=True)
    queen.send("api", "base")
    git("add", ".")
    git("commit", "--quiet", "--message", "base")
    for branch in ("one", "two"):
        git("checkout", "--quiet", "-b", branch, "main")
        queen.send("api", branch)
        git("commit", "--quiet", "--all", "--message", branch)

    git("merge", "--quiet", "one", "--message", "both")

    assert sorted(one.body for one in queen_of("api").inbox()) == ["base", "one", "two"]
    assert examine(queen) == []


def test_outside_of_git_no_attribute_is_asked_for(queen: Queen, home: Home) -> None:
    assert not (home.root / ".git").exists()
    assert examine(queen, fix=True) == []
    assert os.listdir(home.root) == [".beads"]  # noqa: PTH208
