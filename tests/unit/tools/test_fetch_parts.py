"""Fetching parts without a network: the real apt, dpkg-deb and gpg against an archive in a temporary folder.

The archive holds a package `jujutsu` whose jj is a copy of GNU echo (it tells a version, and repeats its arguments),
another copy for Redis behind a link as Debian has it, and a package with this machine's own loader and C library.
"""

from __future__ import annotations

from dataclasses import dataclass
import fcntl
from hashlib import sha256
import importlib.util
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parents[3] / "tools" / "fetch_parts.py"


def _load_script() -> Any:
    spec = importlib.util.spec_from_file_location("fetch_parts", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fetch_parts = _load_script()


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "QUEUEYARD_PARTS", "QUEUEYARD_CARGO", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    """An empty folder to use as the PATH."""
    folder = tmp_path / "nothing"
    folder.mkdir()
    return folder


def _write_script(script: Path, body: str) -> Path:
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return script


def _run_script(*arguments: str, path: Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PATH": str(path)} | environ,
    )


def test_a_missing_part_is_one_loud_line_and_no_failure_on_a_laptop(nothing: Path, tmp_path: Path) -> None:
    done = _run_script("--into", "parts", "jj", "git", path=nothing, cwd=tmp_path)

    jj, git = done.stdout.splitlines()
    assert jj.startswith("jj  MISSING: not on this machine; there is no apt-get to fetch it with;")
    assert jj.endswith("; jj tests will be skipped")
    assert git.startswith("git  MISSING: not on this machine; type: ")
    assert git.endswith("apt-get install git; git tests will be skipped")
    assert done.returncode == 0


@pytest.mark.parametrize(("arguments", "environ"), [([], {"CI": "true"}), (["--require"], {})])
def test_a_missing_part_is_a_failure_where_it_is_required(
    nothing: Path, tmp_path: Path, arguments: list[str], environ: dict[str, str]
) -> None:
    done = _run_script(*arguments, "--into", "parts", "jj", "python", path=nothing, cwd=tmp_path, **environ)

    jj, python = done.stdout.splitlines()
    assert jj.startswith("jj  MISSING: ")
    assert jj.endswith("; jj tests cannot run")
    assert python.startswith("python 3.")
    assert done.returncode == 1


def test_what_is_on_the_path_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    jj = _write_script(tmp_path / "bin" / "jj", "echo jj 0.44.0")

    done = _run_script("--into", "parts", "jj", path=jj.parent, cwd=tmp_path, CI="true")

    assert done.stdout == "jj 0.44.0  bin/jj (on the PATH)\n"
    assert done.returncode == 0
    assert not (tmp_path / "parts").exists()


def test_a_chromium_is_asked_for_by_its_own_name(tmp_path: Path) -> None:
    chromium = _write_script(tmp_path / "bin" / "chromium", "echo Chromium 156.0.8078.73")

    done = _run_script("--into", "parts", "chromium", path=chromium.parent, cwd=tmp_path)

    assert done.stdout == "chromium 156.0.8078.73  bin/chromium (on the PATH)\n"


def test_a_jj_that_was_fetched_before_is_used_again_without_waiting_for_anybody(nothing: Path, tmp_path: Path) -> None:
    _write_script(tmp_path / "parts" / "bin" / "jj", "echo jj 0.46.0")

    with (tmp_path / "parts" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = _run_script("jj", path=nothing, cwd=tmp_path, QUEUEYARD_PARTS=str(tmp_path / "parts"))

    assert done.stdout == "jj 0.46.0  parts/bin/jj (fetched)\n"


def test_the_folder_on_the_command_line_goes_before_the_one_in_the_environment(nothing: Path, tmp_path: Path) -> None:
    _write_script(tmp_path / "flag" / "bin" / "jj", "echo jj 0.45.0")
    _write_script(tmp_path / "environment" / "bin" / "jj", "echo jj 0.46.0")

    done = _run_script("--into", "flag", "jj", path=nothing, cwd=tmp_path, QUEUEYARD_PARTS="environment")

    assert done.stdout == "jj 0.45.0  flag/bin/jj (fetched)\n"


def test_a_jj_on_the_path_that_nobody_has_tested_is_not_used_silently(nothing: Path, tmp_path: Path) -> None:
    _write_script(nothing / "jj", "echo jj 0.99.0")

    done = _run_script("--into", "parts", "jj", path=nothing, cwd=tmp_path)

    assert done.stdout.startswith(
        "jj  MISSING: jj 0.99.0 is on the PATH, but jjq is tested with 0.35 to 0.46; there is no apt-get"
    )


def test_a_folder_that_cannot_be_made_is_a_missing_part(nothing: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = _run_script("--into", "file/parts", "jj", path=nothing, cwd=tmp_path)

    assert done.stdout.startswith("jj  MISSING: ")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    assert done.returncode == 0


def test_an_unknown_part_is_refused(nothing: Path, tmp_path: Path) -> None:
    done = _run_script("mongodb", path=nothing, cwd=tmp_path)

    assert done.returncode == 2
    assert "mongodb" in done.stderr


def test_two_runs_at_once_fetch_one_after_the_other(nothing: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    with (parts / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--into", str(parts), "jj"],
            env=os.environ | {"PATH": str(nothing)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None
        waiting = second.stderr.readline()
        _write_script(parts / "bin" / "jj", "echo jj 0.46.0")

    told, _ = second.communicate()
    assert waiting == f"waiting for another run that is fetching into {parts}\n"
    assert told == f"jj 0.46.0  {parts}/bin/jj (fetched)\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    folder: Path
    keyring: Path
    gpg_home: str

    @property
    def suite(self) -> Path:
        return self.folder / "dists" / "sid"

    def sign(self) -> None:
        command = ["gpg", "--homedir", self.gpg_home, "--batch", "--yes", "--clearsign"]
        _do(*command, "--output", str(self.suite / "InRelease"), str(self.suite / "Release"))


def _do(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _build_package(archive: Path, name: str, *, depends: str, files: dict[str, Path]) -> str:
    """Puts a package into the archive, and returns its paragraph for the index. A file without a folder is a link."""
    root = archive / f"{name}.root"
    for target, source in files.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        if source.is_absolute():
            shutil.copy(source, root / target)
        else:
            (root / target).symlink_to(source)
    (root / "DEBIAN").mkdir()
    control = (
        f"Package: {name}\nVersion: 1\nArchitecture: {_do('dpkg', '--print-architecture').strip()}\n"
        f"Maintainer: nobody <nobody@localhost>\n{depends}Description: for a test\n"
    )
    (root / "DEBIAN" / "control").write_text(control)
    package = archive / f"{name}.deb"
    _do("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(package))
    content = package.read_bytes()
    return f"{control}Filename: {package.name}\nSize: {len(content)}\nSHA256: {sha256(content).hexdigest()}\n"


def _libraries_of_this_machine() -> dict[str, Path]:
    """The loader and the C library that run this very process, for any cpu."""
    mapped = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    wanted = [path for path in mapped if path.name == "libc.so.6" or path.name.startswith("ld")]
    return {f"usr/lib/some-cpu/{path.name}": path for path in wanted}


@pytest.fixture(scope="module")
def signed_archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    for program in ("apt-get", "apt-cache", "dpkg-deb", "gpg", "gpgconf"):
        if shutil.which(program) is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"there is no {program} here")
    folder = tmp_path_factory.mktemp("archive")
    echo, needs_libraries = Path("/usr/bin/echo"), "Depends: libc6\n"
    link = {"usr/bin/redis-server": Path("redis-check-rdb")}
    paragraphs = [
        _build_package(folder, "jujutsu", depends=needs_libraries, files={"usr/bin/jj": echo}),
        _build_package(folder, "redis-server", depends="Depends: redis-tools\n", files=link),
        _build_package(folder, "redis-tools", depends=needs_libraries, files={"usr/bin/redis-check-rdb": echo}),
        _build_package(folder, "libc6", depends="", files=_libraries_of_this_machine()),
    ]
    architecture = _do("dpkg", "--print-architecture").strip()
    index = folder / "dists" / "sid" / "main" / f"binary-{architecture}" / "Packages"
    index.parent.mkdir(parents=True)
    index.write_text("\n".join(paragraphs))
    content = index.read_bytes()
    (folder / "dists" / "sid" / "Release").write_text(
        f"Origin: Debian\nLabel: Debian\nSuite: unstable\nCodename: sid\nArchitectures: {architecture}\n"
        f"Components: main\nDate: {_do('date', '-Ru').strip().replace('+0000', 'UTC')}\nSHA256:\n"
        f" {sha256(content).hexdigest()} {len(content)} {index.relative_to(folder / 'dists' / 'sid')}\n"
    )
    # gpg's agent listens on a socket in its home, and the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="gpg-") as gpg_home:
        gpg = ["gpg", "--homedir", gpg_home, "--batch"]
        _do(*gpg, "--passphrase", "", "--quick-generate-key", "archive", "ed25519", "sign", "never")
        keyring = folder / "keyring.gpg"
        _do(*gpg, "--output", str(keyring), "--export")
        archive = Archive(folder=folder, keyring=keyring, gpg_home=gpg_home)
        archive.sign()
        yield archive
        _do("gpgconf", "--homedir", gpg_home, "--kill", "all")


@pytest.fixture
def archive(signed_archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """A copy of its own, which apt takes for the archive of this machine; no part that works is on the PATH."""
    folder = tmp_path / "archive"
    shutil.copytree(signed_archive.folder, folder, symlinks=True)
    sources, configuration = tmp_path / "sources.list", tmp_path / "apt.conf"
    # The machine trusts it blindly, which must make no difference.
    sources.write_text(f"deb [trusted=yes] file:{folder} sid main\n")
    configuration.write_text(
        f'Dir::Etc::sourcelist "{sources}"; Dir::Etc::sourceparts "-"; Dir::State::lists "{tmp_path}/lists";\n'
        'APT::Get::AllowUnauthenticated "true"; Acquire::AllowInsecureRepositories "true";\n'
    )
    broken = tmp_path / "broken"
    for program in ("jj", "redis-server"):
        _write_script(broken / program, "exit 1")
    monkeypatch.setenv("APT_CONFIG", str(configuration))
    monkeypatch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
    monkeypatch.setattr(fetch_parts, "KEYRINGS", (signed_archive.keyring,))
    return Archive(folder=folder, keyring=signed_archive.keyring, gpg_home=signed_archive.gpg_home)


def _said_by(*command: str | Path) -> str:
    return _do(*map(str, command))


def test_jj_is_unpacked_with_the_libraries_that_it_depends_on(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"

    exit_code = fetch_parts.main(["--require", "--into", str(parts), "jj"])

    assert exit_code == 0
    assert f"  {parts}/bin/jj (fetched" in capsys.readouterr().out
    assert _said_by(parts / "bin" / "jj", "log", "-r", "a | *") == "log -r a | *\n"
    assert sorted(path.name for path in parts.iterdir()) == ["bin", "jj", "lock"]


def test_redis_is_unpacked_beside_jj_and_installed_nowhere(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"

    exit_code = fetch_parts.main(["--require", "--into", str(parts), "redis", "jj"])

    assert exit_code == 0
    assert f"  {parts}/bin/redis-server (fetched)\n" in capsys.readouterr().out
    assert _said_by(parts / "bin" / "redis-server", "--port", "1") == "--port 1\n"
    assert sorted(path.name for path in parts.iterdir()) == ["bin", "jj", "lock", "redis"]


def test_a_fetched_jj_works_after_its_folder_has_moved_and_through_a_link(archive: Archive, tmp_path: Path) -> None:
    fetch_parts.main(["--into", str(tmp_path / "parts"), "jj"])

    moved = tmp_path / "other place" / "parts"
    moved.parent.mkdir()
    (tmp_path / "parts").rename(moved)
    link = tmp_path / "link"
    link.symlink_to(moved / "bin" / "jj")

    assert _said_by(moved / "bin" / "jj", "moved") == "moved\n"
    assert _said_by(link, "linked") == "linked\n"


@pytest.mark.parametrize("wrapper_was_written", [False, True])
def test_what_an_interrupted_fetch_left_behind_is_thrown_away_and_done_again(
    archive: Archive, tmp_path: Path, wrapper_was_written: bool
) -> None:
    parts = tmp_path / "parts"
    torn = parts / "jj" / "usr" / "bin" / "jj"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"\x7fELF and then the power went")
    (parts / "fetching-before" / "apt").mkdir(parents=True)
    if wrapper_was_written:
        _write_script(parts / "bin" / "jj", fetch_parts.UNPACKED["jj"].wrapper("jj"))

    exit_code = fetch_parts.main(["--require", "--into", str(parts), "jj"])

    assert exit_code == 0
    assert _said_by(parts / "bin" / "jj", "whole") == "whole\n"
    assert sorted(path.name for path in parts.iterdir()) == ["bin", "jj", "lock"]


def _drop_the_signature(archive: Archive) -> None:
    (archive.suite / "InRelease").unlink()


def _change_a_package(archive: Archive) -> None:
    package = archive.folder / "jujutsu.deb"
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 1
    package.write_bytes(content)


def _change_the_index(archive: Archive) -> None:
    (index,) = archive.suite.glob("main/*/Packages")
    index.write_text(index.read_text().replace("for a test", "for a joke"))


def _change_what_was_signed(archive: Archive) -> None:
    signed = archive.suite / "InRelease"
    signed.write_text(signed.read_text().replace("Codename: sid", "Codename: sad"))


@pytest.mark.parametrize("tamper", [_drop_the_signature, _change_a_package, _change_the_index, _change_what_was_signed])
def test_an_archive_that_was_tampered_with_gives_nothing(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str], tamper: Any
) -> None:
    tamper(archive)

    exit_code = fetch_parts.main(["--require", "--into", str(tmp_path / "parts"), "jj"])

    assert exit_code == 1
    told = capsys.readouterr().out
    assert told.startswith("jj  MISSING: ")
    assert "apt-get exits 100: E: " in told
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["lock"]


def test_an_archive_that_is_signed_by_a_stranger_gives_nothing(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="gpg-") as gpg_home:
        gpg = ["gpg", "--homedir", gpg_home, "--batch"]
        _do(*gpg, "--passphrase", "", "--quick-generate-key", "stranger", "ed25519", "sign", "never")
        Archive(folder=archive.folder, keyring=archive.keyring, gpg_home=gpg_home).sign()
        _do("gpgconf", "--homedir", gpg_home, "--kill", "all")

    exit_code = fetch_parts.main(["--require", "--into", str(tmp_path / "parts"), "jj"])

    assert exit_code == 1
    assert "MISSING" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["lock"]


def test_without_the_keys_of_debian_nothing_is_fetched(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_parts, "KEYRINGS", (tmp_path / "no-keyring.gpg",))

    exit_code = fetch_parts.main(["--require", "--into", str(tmp_path / "parts"), "jj"])

    assert exit_code == 1
    assert "no-keyring.gpg to check a download with" in capsys.readouterr().out
