"""Makes the real parts available that the tests and the pipeline want, and says in one line each what it found.

    python tools/fetch_parts.py [--into FOLDER] [--require] jj valkey chromium ...

What is on the machine is used as it is. jj and Redis are otherwise unpacked from the machine's own Debian mirror into
the parts folder, without installing anything (Redis, once installed, would run as a service); the system packages are
installed where that is allowed (root, apt-get). The parts folder is --into, else QUEUEYARD_PARTS, else .parts in this
checkout; it may be moved, and may be shared by several checkouts and by several runs at once.

A part that cannot be had is one MISSING line. The exit code is 0 even so, except with --require or CI=true.

This file names no download host, and takes nothing whose signature apt has not checked. It needs the standard
library alone, because it runs before anything is installed.
"""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import dataclass
import fcntl
from functools import cache
import os
from pathlib import Path
import re
import shutil
import sys
from tempfile import mkdtemp
from typing import TYPE_CHECKING

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "src"))

from queueyard.yard.parts import (  # noqa: E402 - the line above makes it importable
    PART_NAMES,
    SUPPORTED_JJ,
    NoAnswerError,
    Part,
    answer_of,
    find_part,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What people call a part, where that is not its name.
ALIASES = {"chromium": "browser"}
#: System packages that need no care: part -> Debian's name.
APT_PACKAGES = {
    "java": "default-jre-headless",
    "bubblewrap": "bubblewrap",
    "browser": "chromium",
}
#: The suite of Debian that has jj.
SUITE = "sid"
#: Where Debian keeps the keys of its archive, old and new spelling.
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)

WORKSHOP_PREFIX = "fetching-"
APT_TIMEOUT_S = 600.0
# dpkg may not be stopped half-way through an installation, so this is for a hang and nothing else.
APT_INSTALL_TIMEOUT_S = 3600.0
CARGO_TIMEOUT_S = 3600.0

# Said explicitly, because the machine's own configuration might allow what we do not.
ONLY_SIGNED = [
    "-o", "APT::Get::AllowUnauthenticated=false",
    "-o", "Acquire::AllowInsecureRepositories=false",
    "-o", "Acquire::AllowWeakRepositories=false",
    "-o", "Acquire::AllowDowngradeToInsecureRepositories=false",
]  # fmt: skip

# The program is started through the C library that was unpacked with it, because the machine's own may be older.
# All paths are relative to the script, and no cpu's name is in them, so the folder may be moved.
WRAPPER = """\
#!/bin/sh
self=$(readlink -f -- "$0")
root=${self%%/bin/%(program)s}/%(part)s
for loader in "$root"/usr/lib/*/ld*.so.*; do break; done
exec "$loader" --library-path "${loader%%/*}" "$root/usr/bin/%(program)s" "$@"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """A part that is unpacked and not installed."""

    program: str
    #: Debian's packages; the libraries that they depend on come along.
    packages: tuple[str, ...]

    def wrapper(self, part: str) -> str:
        return WRAPPER % {"part": part, "program": self.program}


UNPACKED = {
    "jj": Unpacked(program="jj", packages=("jujutsu",)),
    # The first holds links to the programs of the second.
    "redis": Unpacked(program="redis-server", packages=("redis-server", "redis-tools")),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Available:
    version: str
    where: str
    #: How it came to be there, in a few words.
    how: str


class MissingError(Exception):
    """A part cannot be had here; the message says why, and what to type."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    required = options.require or os.environ.get("CI") == "true"
    missing = 0
    for name in options.parts:
        try:
            part = provide(ALIASES.get(name, name), options.into)
            print(f"{name} {part.version}  {part.where} ({part.how})", flush=True)
        except (MissingError, NoAnswerError, OSError) as error:
            missing += 1
            consequence = "cannot run" if required else "will be skipped"
            print(f"{name}  MISSING: {error}; {name} tests {consequence}", flush=True)
    return 1 if missing and required else 0


def provide(name: str, folder: Path) -> Available:
    """The part, after whatever was needed to have it; raises MissingError, NoAnswerError or OSError."""
    if name in UNPACKED:
        return _provide_unpacked(name, folder)
    part = find_part(name)
    if not part.found and name in APT_PACKAGES:
        return _install(part, folder)
    return _available(part)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Find the real parts, and fetch what can be fetched.")
    parser.add_argument("parts", nargs="+", choices=[*PART_NAMES, *ALIASES], metavar="part", help="%(choices)s")
    parser.add_argument(
        "--into",
        type=Path,
        default=os.environ.get("QUEUEYARD_PARTS") or CHECKOUT / ".parts",
        metavar="FOLDER",
        help="where fetched parts live (default: QUEUEYARD_PARTS, else .parts in the checkout)",
    )
    parser.add_argument("--require", action="store_true", help="exit 1 if one is missing, as with CI=true")
    options = parser.parse_args(arguments)
    options.into = options.into.absolute()
    return options


def _available(part: Part, how: str | None = None) -> Available:
    if part.version is None or part.where is None:
        raise MissingError(f"{part.note}; type: {part.next_command}")
    remark = f"; {part.note}" if part.note else ""
    return Available(version=part.version, where=_short(part.where), how=(how or _origin(part.where)) + remark)


def _origin(where: str) -> str:
    if where == sys.executable:
        return "runs this"
    if str(Path(where).parent) in os.get_exec_path():
        return "on the PATH"
    return "from a Python package" if Path(where).is_relative_to(sys.prefix) else "found"


def _short(where: str) -> str:
    here = Path.cwd()
    return str(Path(where).relative_to(here)) if Path(where).is_relative_to(here) else where


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Held by one run at a time; let go by the kernel however the run ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another run that is fetching into {folder}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- system packages


def _install(part: Part, folder: Path) -> Available:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return _available(part)
    with _alone(folder):
        part = find_part(part.name)
        if part.found:
            return _available(part)
        _refresh_package_lists()
        _apt(
            ["-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", APT_PACKAGES[part.name]],
            timeout_s=APT_INSTALL_TIMEOUT_S,
        )
    return _available(find_part(part.name), how="installed")


@cache
def _refresh_package_lists() -> None:
    # A mirror that is down spoils this and not the installation, whose own error is the one worth showing.
    answer_of(["apt-get", *ONLY_SIGNED, "update"], timeout_s=APT_TIMEOUT_S)


def _apt(arguments: list[str], *, timeout_s: float = APT_TIMEOUT_S, cwd: Path | None = None) -> str:
    return _output_of(["apt-get", *ONLY_SIGNED, *arguments], timeout_s=timeout_s, cwd=cwd)


def _output_of(command: list[str], *, timeout_s: float, cwd: Path | None = None) -> str:
    """What the command said; raises MissingError with its own words when it fails."""
    try:
        exit_code, output = answer_of(
            command, timeout_s=timeout_s, cwd=cwd, environ={"DEBIAN_FRONTEND": "noninteractive"}
        )
    except NoAnswerError as error:
        raise MissingError(f"{command[0]} {error}") from error
    if exit_code != 0:
        raise MissingError(f"{command[0]} exits {exit_code}: {_complaint(output)}")
    return output


def _complaint(output: str) -> str:
    """The line that says most: the first one that is marked as an error, else the last one."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"(E|error):", line)]
    return next(iter(marked + lines[-1:]), "without a word")


# --- what is unpacked and not installed


def _provide_unpacked(name: str, folder: Path) -> Available:
    on_the_path = find_part(name)
    if on_the_path.found and on_the_path.note is None:
        return _available(on_the_path)
    kept = _kept(name, folder)
    if not kept.found:
        try:
            kept = _fetch_once(name, folder)
        except MissingError as error:
            raise MissingError(f"{_shortcoming(on_the_path)}; {error}") from error
    return _available(kept, how="fetched")


def _shortcoming(on_the_path: Part) -> str:
    if on_the_path.found:
        return f"{on_the_path.name} {on_the_path.version} is on the PATH, but {on_the_path.note}"
    return on_the_path.note or "not on this machine"


def _fetch_once(name: str, folder: Path) -> Part:
    with _alone(folder):
        kept = _kept(name, folder)
        if not kept.found:
            _fetch(name, folder)
            kept = _kept(name, folder)
    return kept


def _kept(name: str, folder: Path) -> Part:
    return find_part(name, search_path=str(folder / "bin"))


def _fetch(name: str, folder: Path) -> None:
    """Leaves a program in the bin of the folder that has answered; until then all happens in a workshop beside it.

    Whatever an interrupted run has left behind is thrown away first.
    """
    program = UNPACKED[name].program
    for leftover in (folder / name, *folder.glob(f"{WORKSHOP_PREFIX}*")):
        shutil.rmtree(leftover, ignore_errors=True)
    # A new name each time: an apt-get that outlived its run may still be writing to the old one.
    workshop = Path(mkdtemp(prefix=WORKSHOP_PREFIX, dir=folder))
    try:
        _make(name, workshop)
        (folder / "bin").mkdir(exist_ok=True)
        if (workshop / name).exists():
            (workshop / name).rename(folder / name)
        (workshop / "bin" / program).replace(folder / "bin" / program)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _make(name: str, workshop: Path) -> None:
    try:
        _unpack(name, workshop)
        _try_out(name, workshop)
    except MissingError as error:
        if name != "jj":
            raise
        if os.environ.get("QUEUEYARD_CARGO") != "1":
            raise MissingError(f"{error}; to compile it, type: QUEUEYARD_CARGO=1 make parts") from error
        shutil.rmtree(workshop)
        _compile_jj(workshop)
        _try_out(name, workshop)


def _try_out(name: str, workshop: Path) -> None:
    made = _kept(name, workshop)
    if not made.found:
        raise MissingError(f"the fetched {name} does not work: {made.note}")


def _compile_jj(workshop: Path) -> None:
    (oldest_major, oldest_minor), (newest_major, newest_minor) = SUPPORTED_JJ
    supported = f">={oldest_major}.{oldest_minor}, <{newest_major}.{newest_minor + 1}"
    command = ["cargo", "install", "--locked", "--bin", "jj", "--root", str(workshop), "--version", supported]
    _output_of([*command, "jj-cli"], timeout_s=CARGO_TIMEOUT_S)


def _unpack(name: str, workshop: Path) -> None:
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise MissingError(f"there is no {program} to fetch it with")
    packages = workshop / "packages"
    packages.mkdir()
    apt = _private_apt(workshop / "apt")
    wanted = UNPACKED[name]
    _apt([*apt, "download", *wanted.packages, *_libraries_of(wanted, apt)], cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        _output_of(["dpkg-deb", "-x", str(package), str(workshop / name)], timeout_s=APT_TIMEOUT_S)
    wrapper = workshop / "bin" / wanted.program
    wrapper.parent.mkdir()
    wrapper.write_text(wanted.wrapper(name), encoding="utf-8")
    wrapper.chmod(0o755)


def _libraries_of(wanted: Unpacked, apt: list[str]) -> list[str]:
    """Every library package that it needs in this release of it, the C library included."""
    command = ["apt-cache", *apt, "depends", "--recurse", "--important", *wanted.packages]
    # Packages stand at the start of a line, what they depend on is indented, and <virtual> ones have no file.
    return re.findall(r"^(lib[^\s:]+)", _output_of(command, timeout_s=APT_TIMEOUT_S), re.MULTILINE)


def _private_apt(folder: Path) -> list[str]:
    """The options that make apt know nothing but Debian's suite with jj, its lists read and their signature checked."""
    keyring = next((path for path in KEYRINGS if path.is_file()), None)
    if keyring is None:
        raise MissingError(f"there is no {KEYRINGS[0]} to check a download with")
    for name in ("lists/partial", "cache/archives/partial", "preferences"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    sources = folder / "sources.list"
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": folder / "preferences",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "Acquire::Retries": 2,
        "Acquire::http::Timeout": 30,
        "Acquire::https::Timeout": 30,
        # A mirror out of reach is otherwise a warning, and the error comes later and says less.
        "APT::Update::Error-Mode": "any",
        # The parts folder may be below a home that apt's own user cannot enter.
        "APT::Sandbox::User": "root",
    }
    apt = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    complaint = "apt knows no Debian archive"
    for archive in _debian_archives():
        sources.write_text(f"deb [signed-by={keyring}] {archive} {SUITE} main\n", encoding="utf-8")
        try:
            _apt([*apt, "update"])
        except MissingError as error:
            complaint = str(error)
        else:
            return apt
    raise MissingError(complaint)


def _debian_archives() -> list[str]:
    """The addresses that the machine has its own packages from, Debian's own archive first when apt can tell."""
    of_debian = ["Created-By: Packages", "Origin: Debian", "Label: Debian", "Component: main"]
    known = _apt(["indextargets", "--format", "$(REPO_URI)", *of_debian]).split()
    # Where the lists have never been read, apt can still say where it would go. A wrong guess among these does no
    # harm: it is not signed by Debian.
    configured = re.findall(
        r"^'(\S+/)dists/(?!\S*security)\S+/InRelease'", _apt(["update", "--print-uris"]), re.MULTILINE
    )
    return list(dict.fromkeys(known or configured))


if __name__ == "__main__":
    sys.exit(main())
