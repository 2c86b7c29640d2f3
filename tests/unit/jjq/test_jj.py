"""Talking to jj: quoting, answers, errors, versions and the trace. A stand-in for jj says what is to be understood."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.jjq.errors import JjFailed, MissingJj, StaleWorkspace, UnfitJj
from queueyard.jjq.jj import Jj, find_jj, pinned, quoted, symbol
from queueyard.jjq.records import Commit

if TYPE_CHECKING:
    from pathlib import Path


def stand_in(folder: Path, script: str) -> Jj:
    """A jj that does what a shell script says."""
    path = folder / "jj"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return Jj(folder, executable=str(path), environment={"JJQ_TRACE": str(folder / "trace"), "PATH": "/bin:/usr/bin"})


@pytest.mark.parametrize(
    ("text", "version"), [("jj 0.35.0", (0, 35)), ("jj 0.46.0-3\n", (0, 46)), ("jj 1.2.3-dev", (1, 2))]
)
def test_a_version_is_read_and_asked_for_once(tmp_path: Path, text: str, version: tuple[int, int]) -> None:
    jj = stand_in(tmp_path, f"echo '{text.strip()}'")

    assert (jj.version(), jj.version()) == (version, version)
    assert len((tmp_path / "trace").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize("text", ["jj 0.34.9", "jj 0.9.0", "", "git version 2.39"])
def test_an_old_or_unknown_one_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnfitJj):
        stand_in(tmp_path, f"echo '{text}'").version()


def test_a_missing_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingJj):
        find_jj({"PATH": str(tmp_path)})
    with pytest.raises(MissingJj):
        Jj(tmp_path, executable=str(tmp_path / "nothing"), environment={}).version()
    assert find_jj({"PATH": str(tmp_path), "JJQ_JJ": "/somewhere/jj"}) == "/somewhere/jj"


def test_what_jj_says_when_it_fails_is_kept_with_its_hint(tmp_path: Path) -> None:
    jj = stand_in(tmp_path, "echo 'Warning: odd' >&2; echo 'Error: No such thing' >&2; echo 'Hint: Try x' >&2; exit 1")

    with pytest.raises(JjFailed, match="jj log failed: No such thing") as fault:
        jj.commits("x")

    assert fault.value.hint == "Try x"
    assert "Warning: odd" in fault.value.said


def test_a_stale_workspace_is_told_apart(tmp_path: Path) -> None:
    jj = stand_in(tmp_path, "echo 'Error: The working copy is stale (not updated since operation 1).' >&2; exit 1")

    with pytest.raises(StaleWorkspace) as fault:
        jj.resolve("@", cwd=tmp_path)

    assert "jj workspace update-stale" in (fault.value.hint or "")


def test_the_revision_that_was_made_is_read_from_what_jj_says(tmp_path: Path) -> None:
    commit = '{"commit_id":"1","change_id":"z","description":"a \\\\n b"}'
    told = f'<<jjq {{"commit":{commit},"conflict":true,"empty":false}} jjq>>'
    jj = stand_in(tmp_path, f"echo 'Created new commit {told}' >&2; echo 'Parent: {told}' >&2")

    made = jj.new(Commit(commit_id="2", change_id="y"), message="x")

    assert made.commit == Commit(commit_id="1", change_id="z", description="a \n b")
    assert made.conflict


def test_a_change_without_a_mark_is_an_error_and_not_a_guess(tmp_path: Path) -> None:
    with pytest.raises(JjFailed, match="did not say which revision"):
        stand_in(tmp_path, "true").new(Commit(commit_id="2", change_id="y"), message="x")


@pytest.mark.parametrize(
    ("version", "pattern"), [("0.35.0", 'exact:two "words"'), ("0.46.0", 'exact:"two \\"words\\""')]
)
def test_patterns_are_quoted_as_the_version_wants_it(tmp_path: Path, version: str, pattern: str) -> None:
    jj = stand_in(tmp_path, f"echo jj {version}")

    assert jj.exact('two "words"') == pattern
    assert jj.exact("release/1.0") == "exact:release/1.0"


def test_before_0_40_a_description_is_set_by_a_call_of_its_own(tmp_path: Path) -> None:
    told = '<<jjq {"commit":{"commit_id":"1","change_id":"z"},"conflict":false,"empty":true} jjq>>'
    script = f"case \"$*\" in *--version*) echo jj 0.35.0;; *) echo '{told}' >&2;; esac"
    jj = stand_in(tmp_path, script)

    jj.add_workspace("w", tmp_path, "main", message="hello")

    calls = [json.loads(line)["call"] for line in (tmp_path / "trace").read_text(encoding="utf-8").splitlines()]
    assert [call[0] for call in calls] == ["--version", "workspace", "describe"]
    assert "-m" not in calls[1]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_quoted_text_holds_no_bare_quote(text: str) -> None:
    inner = quoted(text)[1:-1]

    assert inner.replace("\\\\", "").replace('\\"', "").count('"') == 0
    assert inner.replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\") == text


def test_plain_names_need_no_quotes() -> None:
    assert symbol("jjq/queue/000001") == "jjq/queue/000001"
    assert symbol("two words") == '"two words"'
    assert pinned(Commit(commit_id="abc", change_id="xyz")) == "change_id(xyz) & commit_id(abc)"
