"""Unit files for systemd and a container file: for the daemon, workers, runner, server, dashboard and pipeline.

The files stand in `unit_files/` as they are, but for where Queueyard is installed and what every service may not do.
Nothing here talks to systemd, except `verify`, which asks `systemd-analyze` where there is one.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from queueyard.kernel.atomic import replace_file
from queueyard.kernel.errors import explaining
from queueyard.kernel.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FILES = Path(__file__).parent / "unit_files"
_HARDENING = "hardening"
CONTAINER_FILE = "Containerfile"
#: what no service does without
_MUST_HAVE = ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "User=queueyard", "UMask=0077")
#: what systemd says about a machine, and not about a unit
_NOT_OURS = ("Failed to", "SYSTEMD_", "Unit queueyard-")
_VERIFY_TIMEOUT_S = 60.0
#: as a template is asked about: it has no name of its own
_AN_INSTANCE = "tmp"


def unit_files(prefix: str) -> dict[str, str]:
    """Name -> text of every file, for a Queueyard that is installed in `prefix`."""
    hardening = (_FILES / _HARDENING).read_text(encoding="utf-8").rstrip("\n")
    names = sorted(path.name for path in _FILES.iterdir() if path.name != _HARDENING)
    texts = {name: (_FILES / name).read_text(encoding="utf-8") for name in names}
    return {name: text.replace("@HARDENING@", hardening).replace("@PREFIX@", prefix) for name, text in texts.items()}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Every file in the folder, which is made. StorageFailed if it cannot be."""
    with explaining("make", folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        replace_file(folder / name, text.encode(), mode=0o644)
    return [folder / name for name in files]


def examine(files: Mapping[str, str], folder: Path | None) -> list[Finding]:
    """What is wrong with the files; with a folder, also what differs there."""
    found = [*_differences(files, folder)] if folder is not None else []
    for name, text in files.items():
        if name.endswith(".service"):
            found += _faults(name, text)
    return [*found, *verify(files)]


def verify(files: Mapping[str, str]) -> list[Finding]:
    """What `systemd-analyze verify` says; nothing where there is no systemd."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return []
    with tempfile.TemporaryDirectory(prefix="queueyard-units-") as made:
        units = {name: text for name, text in files.items() if name != CONTAINER_FILE}
        write(units, Path(made))
        asked = [str(Path(made, name.replace("@.", f"@{_AN_INSTANCE}."))) for name in units]
        done = subprocess.run(
            [program, "verify", "--man=no", *asked],
            capture_output=True,
            text=True,
            timeout=_VERIFY_TIMEOUT_S,
            check=False,
            env={"SYSTEMD_UNIT_PATH": f"{made}:", "PATH": "/usr/bin:/bin"},
        )
    told = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(_NOT_OURS)]
    return [Finding(check="systemd", problem=line, advice="Look at it: queueyard units") for line in told]


def _differences(files: Mapping[str, str], folder: Path) -> Iterator[Finding]:
    for name, text in files.items():
        there = None
        with suppress(OSError):
            there = (folder / name).read_text(encoding="utf-8")
        if there != text:
            problem = f"{folder / name} {'is not there' if there is None else 'is not what this version writes'}"
            yield Finding(check="files", problem=problem, advice=f"Write it: queueyard units --out {folder}")


def _faults(name: str, text: str) -> Iterator[Finding]:
    lines = text.splitlines()
    for wanted in _MUST_HAVE:
        if wanted not in lines:
            yield Finding(check="hardening", problem=f"{name} has no {wanted}", advice=f"Add it to {name}")
    for line in lines:
        program = line.removeprefix("ExecStart=").partition(" ")[0]
        if line.startswith("ExecStart=") and not Path(program).is_file():
            advice = "Install it there, or say where it is: queueyard units --prefix DIR"
            yield Finding(check="program", problem=f"{name} starts {program}, which is not there", advice=advice)


def page(prefix: str = "/opt/queueyard") -> str:
    """The files as a page of the documents."""
    parts = [(_FILES.parent / "unit_page.md").read_text(encoding="utf-8").rstrip("\n")]
    for name, text in unit_files(prefix).items():
        kind = "dockerfile" if name == CONTAINER_FILE else "ini"
        parts.append(f"## {name}\n\n```{kind}\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
