"""Every console script behaves alike: usage, version, suggestions, and the same words under the umbrella."""

from __future__ import annotations

from importlib import import_module
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import click
import pytest

from queueyard.cli import SCRIPTS
from queueyard.console import Script

if TYPE_CHECKING:
    from pathlib import Path


class Launcher(Protocol):
    def command(self, script: str) -> list[str]: ...


def run(command: list[str], *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "80"} | environment,
    )


def test_the_umbrella_knows_every_script_that_is_declared(declared: dict[str, str]) -> None:
    assert {*SCRIPTS, "queueyard"} == set(declared)


def test_a_declared_script_exists_and_is_built_as_all_are(script: str, declared: dict[str, str]) -> None:
    module, _, attribute = declared[script].partition(":")

    assert isinstance(getattr(import_module(module), attribute), Script)


def test_without_a_command_usage_goes_to_stderr_and_the_exit_code_is_2(launcher: Launcher, script: str) -> None:
    answer = run(launcher.command(script))

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith(f"Usage: {script} [OPTIONS] COMMAND [ARGS]...")


def test_the_version_is_that_of_the_house(launcher: Launcher, script: str) -> None:
    answer = run(launcher.command(script), "--version")

    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == f"{script}, version 0.1.0\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_goes_to_stdout(launcher: Launcher, script: str, flag: str) -> None:
    answer = run(launcher.command(script), flag)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"Usage: {script} [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize(("system", "short"), SCRIPTS.items())
def test_under_the_umbrella_a_script_says_the_same_apart_from_its_name(
    launcher: Launcher, system: str, short: str
) -> None:
    alone = run(launcher.command(system), "--help").stdout
    below = run(launcher.command("queueyard"), short, "--help").stdout

    assert below == alone.replace(f"Usage: {system}", f"Usage: queueyard {short}", 1)


@pytest.mark.parametrize(("typed", "meant"), [("jjk", "jjq"), ("complation", "completion"), ("doktor", "doctor")])
def test_an_unknown_command_gets_a_suggestion(launcher: Launcher, typed: str, meant: str) -> None:
    answer = run(launcher.command("queueyard"), typed)

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert f"No such command {typed!r}. Did you mean {meant!r}?" in answer.stderr


def test_an_unknown_command_of_a_script_exits_2(launcher: Launcher, script: str) -> None:
    answer = run(launcher.command(script), "no-such-command-anywhere")

    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "No such command 'no-such-command-anywhere'." in answer.stderr


def test_every_command_has_a_help_line(script: str, declared: dict[str, str]) -> None:
    module, _, attribute = declared[script].partition(":")
    main = getattr(import_module(module), attribute)
    context = click.Context(main, info_name=script)

    silent = [name for name in main.list_commands(context) if not main._help_line(context, name, 80)]

    assert silent == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_code_names_every_script(launcher: Launcher, declared: dict[str, str], shell: str) -> None:
    answer = run(launcher.command("queueyard"), "completion", shell)

    assert answer.returncode == 0
    for script in declared:
        assert f"_{script.replace('-', '_').upper()}_COMPLETE" in answer.stdout


def test_a_script_answers_the_completion_that_its_code_asks_for(launcher: Launcher) -> None:
    answer = run(
        launcher.command("queueyard"),
        _QUEUEYARD_COMPLETE="bash_complete",
        COMP_WORDS="queueyard comp",
        COMP_CWORD="1",
    )

    assert answer.stdout == "plain,completion\n"


def test_the_module_that_runforge_desktop_starts_is_the_same_script(source: Path, launcher: Launcher) -> None:
    module = run([sys.executable, "-m", "runforge_cli"], "--help")

    assert module.returncode == 0
    assert module.stdout == run(launcher.command("runforge-cli"), "--help").stdout
