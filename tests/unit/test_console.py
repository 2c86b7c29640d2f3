"""What every console script shares, on a small script of its own; the real scripts are tested in house/."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import click
from click.testing import CliRunner, Result
import pytest

from queueyard.console import Script, examples
from queueyard.kernel.errors import BadSettings, QueueyardError, StorageFailed, UsageFault

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import sys
import click
from queueyard.console import Script, json_option, version_option
from queueyard.kernel.errors import BadSettings, StorageFailed, UsageFault

@click.group(cls=Script, later={"heavy": ("antigravity_is_not_here:main", "Not imported for help.")})
@version_option("demo")
def main():
    "A demo."

@main.command()
@json_option
@click.option("--hint/--no-hint", default=True)
def fail(as_json, hint):
    "Fails as foreseen."
    raise StorageFailed("cannot write x: No space left on device", hint="Free some space." if hint else None)

@main.command()
def contradict():
    raise UsageFault("--all and --only contradict each other", hint="demo contradict --all")

@main.command()
def bug():
    raise ZeroDivisionError

@main.command()
def talk():
    click.echo("data")

main(prog_name="demo")
"""


def demo(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


class TestFailure:
    def test_an_error_is_told_on_stderr_with_its_hint_and_its_exit_code(self) -> None:
        answer = demo("fail")

        assert answer.returncode == 1
        assert answer.stdout == ""
        assert answer.stderr == "Error: cannot write x: No space left on device\nHint: Free some space.\n"

    def test_without_a_hint_there_is_no_empty_hint(self) -> None:
        assert demo("fail", "--no-hint").stderr == "Error: cannot write x: No space left on device\n"

    def test_with_json_the_same_is_one_object_on_stderr(self) -> None:
        answer = demo("fail", "--json")

        assert answer.returncode == 1
        assert answer.stdout == ""
        assert json.loads(answer.stderr) == {
            "error": "cannot write x: No space left on device",
            "kind": "StorageFailed",
            "hint": "Free some space.",
            "exit_code": 1,
        }

    def test_a_contradiction_on_the_command_line_exits_as_an_unknown_option_does(self) -> None:
        assert demo("contradict").returncode == 2
        assert demo("talk", "--unknown").returncode == 2

    def test_a_bug_keeps_its_traceback(self) -> None:
        answer = demo("bug")

        assert answer.returncode == 1
        assert "Traceback" in answer.stderr
        assert answer.stderr.endswith("ZeroDivisionError\n")

    @pytest.mark.parametrize(("environment", "coloured"), [({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
    def test_colour_is_for_terminals_that_do_not_refuse_it(self, environment: dict[str, str], coloured: bool) -> None:
        ours, theirs = pty.openpty()

        subprocess.run(
            [sys.executable, "-c", PROGRAM, "fail"],
            stderr=theirs,
            check=False,
            env=os.environ | {"TERM": "xterm"} | environment,
        )

        os.close(theirs)
        told = os.read(ours, 4096)
        os.close(ours)
        assert b"Error:" in told
        assert (b"\x1b[31m" in told) == coloured


def test_a_program_gets_the_facts_of_an_error_beside_the_sentence() -> None:
    class TooMany(QueueyardError):
        def facts(self) -> dict[str, object]:
            return {"count": 3}

    script = Script(name="demo")

    @script.command(params=[click.Option(["--json", "as_json"], is_flag=True)])
    def work(*, as_json: bool) -> None:
        raise TooMany("three is too many")

    answer = CliRunner().invoke(script, ["work", "--json"])

    assert json.loads(answer.stderr) == {
        "error": "three is too many",
        "kind": "TooMany",
        "hint": None,
        "exit_code": 1,
        "count": 3,
    }


class TestScript:
    def test_without_a_command_it_shows_its_usage_on_stderr_and_exits_2(self) -> None:
        answer = demo()

        assert answer.returncode == 2
        assert answer.stdout == ""
        assert answer.stderr.startswith("Usage: demo [OPTIONS] COMMAND [ARGS]...")

    def test_help_lists_all_commands_and_imports_none(self) -> None:
        answer = demo("--help")

        assert answer.returncode == 0
        assert answer.stderr == ""
        listed = [line.split()[0] for line in answer.stdout.partition("Commands:\n")[2].splitlines()]
        assert sorted(listed) == ["bug", "contradict", "fail", "heavy", "talk"]
        assert "Fails as foreseen." in answer.stdout
        assert "Not imported for help." in answer.stdout

    def test_a_later_command_is_imported_when_it_is_called(self) -> None:
        assert "No module named 'antigravity_is_not_here'" in demo("heavy").stderr

    @pytest.mark.parametrize(
        ("typed", "told"),
        [("tlak", "No such command 'tlak'. Did you mean 'talk'?"), ("heavi", "Did you mean 'heavy'?"), ("x", "'x'.\n")],
    )
    def test_an_unknown_command_gets_a_suggestion_if_there_is_a_near_one(self, typed: str, told: str) -> None:
        answer = demo(typed)

        assert answer.returncode == 2
        assert told in answer.stderr

    def test_a_reader_that_goes_away_is_no_traceback(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)

        answer = subprocess.run(
            [sys.executable, "-c", PROGRAM, "talk"], stdout=writer, stderr=subprocess.PIPE, check=False
        )

        os.close(writer)
        assert answer.returncode == 1
        assert answer.stderr == b""


def test_examples_are_never_wrapped_again() -> None:
    script = Script(name="demo", help="A demo.", epilog=examples("demo " + "x" * 60, "demo y"))

    shown = CliRunner().invoke(script, ["--help"]).output

    assert f"Examples:\n    demo {'x' * 60}\n    demo y\n" in shown


class TestWithinAScript:
    @pytest.mark.parametrize(
        ("kind", "code"), [(QueueyardError, 1), (UsageFault, 2), (StorageFailed, 1), (BadSettings, 1)]
    )
    def test_an_error_in_a_nested_group_reaches_the_outermost_script(
        self, kind: type[QueueyardError], code: int
    ) -> None:
        outer, inner = Script(name="outer"), Script(name="inner")

        @inner.command()
        def deep() -> None:
            raise kind("wrong", hint="right")

        outer.add_command(inner)

        answer: Result = CliRunner().invoke(outer, ["inner", "deep"])

        assert answer.exit_code == code
        assert answer.stderr == "Error: wrong\nHint: right\n"


def test_a_wrong_setting_is_a_clear_error_and_the_state_stays(tmp_path: Path) -> None:
    program = """
import os, pathlib
import click, msgspec
from queueyard.console import Script
from queueyard.kernel.atomic import replace_file
from queueyard.kernel.settings import file_layer, settle

class Demo(msgspec.Struct, frozen=True, kw_only=True):
    ttl_s: int = 60

@click.group(cls=Script)
def main(): pass

@main.command()
def work():
    home = pathlib.Path(os.environ["DEMO_HOME"])
    settle(Demo, [file_layer(home / "yard.toml")])
    replace_file(home / "state.json", b"new")

main()
"""
    (tmp_path / "yard.toml").write_text('ttl_s = "soon"\nttl = 5\n')
    (tmp_path / "state.json").write_text("old")

    answer = subprocess.run(
        [sys.executable, "-c", program, "work"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DEMO_HOME": str(tmp_path)},
    )

    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        "Error: these settings are wrong:",
        f"  - ttl ({tmp_path}/yard.toml): no such setting; did you mean ttl_s?",
        f"  - ttl_s ({tmp_path}/yard.toml): Expected `int`, got `str`",
        "Hint: Correct them all, then run the same command again.",
    ]
    assert (tmp_path / "state.json").read_text() == "old"
