"""Commands of the caller: asked before a push, told how an item ended."""

from __future__ import annotations

from datetime import UTC, datetime
import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.jjq import hooks
from queueyard.jjq.errors import PushRefused
from queueyard.jjq.events import read_journal
from queueyard.jjq.hooks import TellingJournal, ask_before_push
from queueyard.jjq.records import Commit
from queueyard.kernel.events import Event, Kind, System, make_event

if TYPE_CHECKING:
    from pathlib import Path

CANDIDATE = Commit(commit_id="c0ffee", change_id="kkkk", description="a button\n\nand more\n")


def ask(command: str, cwd: Path) -> None:
    ask_before_push(command, CANDIDATE, cwd=cwd, environment=os.environ)


def event(kind: Kind) -> Event:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return make_event(at, system=System.JJQ, queue="main", item="000007", kind=kind, change="x", source="/repo")


def test_a_command_that_ends_well_allows_the_push_and_knows_what_it_is_about(tmp_path: Path) -> None:
    ask("sh -c 'echo $JJQ_COMMIT $JJQ_CHANGE $JJQ_SUBJECT > asked'", tmp_path)

    assert (tmp_path / "asked").read_text() == "c0ffee kkkk a button\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sh -c 'echo Error: not today >&2; exit 3'", "not queued: not today"),
        ("false", "'false' ended with 1"),
        ("no-such-program-anywhere", "cannot be started"),
        ("'", "cannot be started"),
    ],
)
def test_everything_else_refuses_it_and_says_why(tmp_path: Path, command: str, told: str) -> None:
    with pytest.raises(PushRefused, match=told) as refused:
        ask(command, tmp_path)

    assert "JJQ_BEFORE_PUSH" in (refused.value.hint or "")


def test_a_command_that_takes_too_long_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "LONGEST_S", 0.05)

    with pytest.raises(PushRefused, match="took longer"):
        ask("sleep 60", tmp_path)


def test_only_items_that_landed_or_failed_are_told_and_all_are_in_the_journal(tmp_path: Path) -> None:
    notes: list[str] = []
    journal = TellingJournal(
        tmp_path / "journal", "sh -c 'cat >> told'", cwd=tmp_path, environment=os.environ, note=notes.append
    )

    journal.append(event(Kind.QUEUED), event(Kind.STARTED), event(Kind.SUCCEEDED))
    journal.append(event(Kind.CONFLICTED))
    journal.append(event(Kind.CANCELED))

    told = (tmp_path / "told").read_bytes()
    assert told == b"".join(msgspec.json.encode(event(kind)) for kind in (Kind.SUCCEEDED, Kind.CONFLICTED))
    assert len(list(read_journal(tmp_path / "journal", on_bad=lambda bad: pytest.fail(str(bad))))) == 5
    assert notes == []


def test_a_command_that_fails_is_noted_and_disturbs_nobody(tmp_path: Path) -> None:
    notes: list[str] = []
    journal = TellingJournal(tmp_path / "journal", "false", cwd=tmp_path, environment=os.environ, note=notes.append)

    journal.append(event(Kind.FAILED))

    assert notes == ["nobody was told about item 7: exit code 1"]
