"""What a user may type or have that makes no sense: an error that says what to do, and nothing is changed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

COMMANDS = [
    ("push", "@"),
    ("run",),
    ("run", "--all"),
    ("status",),
    ("retry", "1"),
    ("delete", "1"),
    ("config",),
    ("config", "max_failures", "1"),
    ("log",),
    ("clean",),
    ("doctor",),
    ("check",),
    ("wait", "1"),
    ("tail",),
    ("stats",),
    ("init",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_outside_a_repository_every_command_exits_1(fresh: Repository, words: tuple[str, ...]) -> None:
    answer = fresh.jjq(*words, cwd=fresh.home / "tmp")

    assert (answer.code, answer.stdout) == (1, "")
    assert "not in a jj repository" in answer.stderr


def test_without_a_command_and_with_an_unknown_one_usage_goes_to_stderr_and_the_exit_code_is_2(
    fresh: Repository,
) -> None:
    for words in ((), ("psuh",), ("--unknown",)):
        answer = fresh.jjq(*words)

        assert (answer.code, answer.stdout) == (2, "")
        assert "Usage: jjq" in answer.stderr
    assert "Did you mean 'push'?" in fresh.jjq("psuh").stderr


@pytest.mark.parametrize("words", [("push",), ("retry",), ("delete",), ("wait",), ("push", "a", "b"), ("run", "x")])
def test_too_few_or_too_many_words_exit_2(fresh: Repository, words: tuple[str, ...]) -> None:
    assert fresh.jjq(*words).code == 2


def test_a_missing_jj_is_named_with_what_to_do(fresh: Repository) -> None:
    answer = fresh.jjq("status", PATH="/nowhere")

    assert answer.code == 1
    assert "jj was not found" in answer.stderr
    assert "Install jj 0.35 or newer" in answer.stderr


@pytest.mark.parametrize("words", [("status",), ("push", "@"), ("run",), ("config",), ("doctor",)])
def test_a_jj_that_is_too_old_is_refused_before_anything_is_changed(
    fresh: Repository, jj: str, words: tuple[str, ...]
) -> None:
    old = pretend_version(fresh.home, jj, "jj 0.34.0")
    before = fresh.many("all()")

    answer = fresh.jjq(*words, PATH=f"{old}{os.pathsep}{fresh.variables['PATH']}")

    assert answer.code == 1
    assert "jj 0.34 is too old: jjq needs 0.35 or newer" in answer.stderr
    assert fresh.many("all()") == before


def test_a_program_that_is_no_jj_is_refused(fresh: Repository, jj: str) -> None:
    other = pretend_version(fresh.home, jj, "something else")

    answer = fresh.jjq("status", PATH=f"{other}{os.pathsep}{fresh.variables['PATH']}")

    assert answer.code == 1
    assert "does not say which version of jj it is" in answer.stderr


def test_a_newer_jj_works_and_doctor_tells(repository: Repository, jj: str) -> None:
    newer = pretend_version(repository.home, jj, "jj 0.99.0")
    repository.environment["PATH"] = f"{newer}{os.pathsep}{repository.variables['PATH']}"
    repository.push("one")

    answer = repository.jjq("doctor")

    assert "jj 0.99 is newer than 0.46" in answer.stdout


def test_errors_in_json_name_kind_hint_and_exit_code(repository: Repository) -> None:
    answer = repository.jjq("push", "none()", "--json")

    told = json.loads(answer.stderr)
    assert (answer.code, answer.stdout) == (1, "")
    assert (told["kind"], told["exit_code"]) == ("BadRevset", 1)
    assert told["hint"]


def test_settings_of_the_caller_are_checked(repository: Repository) -> None:
    answer = repository.jjq("status", JJQ_LOCK_TIMEOUT_S="soon")

    assert answer.code == 1
    assert "JJQ_LOCK_TIMEOUT_S" in answer.stderr


def test_a_link_to_nowhere_is_no_repository(fresh: Repository) -> None:
    folder = fresh.home / "broken"
    (folder / ".jj").mkdir(parents=True)
    (folder / ".jj" / "repo").write_text("../nowhere", encoding="utf-8")

    answer = fresh.jjq("status", cwd=folder)

    assert answer.code == 1
    assert "leads to" in answer.stderr


@pytest.mark.parametrize("name", ["landing.json", "requeue.json"])
def test_a_note_that_makes_no_sense_is_an_error_that_names_it(repository: Repository, name: str) -> None:
    repository.push("one")
    (repository.private / name).write_bytes(b"{")
    (repository.private / "run.json").write_bytes(b"{")

    answer = repository.jjq("run")

    assert answer.code == 1
    assert name in answer.stderr


def pretend_version(home: Path, jj: str, version: str) -> Path:
    """A folder with a jj that says another version and is the real one otherwise."""
    folder = home / "pretender"
    folder.mkdir()
    script = folder / "jj"
    text = f'#!/bin/sh\ncase " $* " in *" --version "*) echo "{version}"; exit;; esac\nexec {jj} "$@"\n'
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    return folder
