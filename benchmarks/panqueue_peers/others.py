"""Other libraries, each in a folder of its own, and the programs that measure them."""

from __future__ import annotations

import json
from pathlib import Path
import shutil
import subprocess
import sys

_PROGRAMS = Path(__file__).parent / "programs"

#: name -> packages, and how many jobs a round takes
PYTHON_PEERS = {
    "arq": ("arq==0.28.0", 1_500),
    "saq": ("saq[redis]==0.26.4 typing-extensions==4.16.0", 1_500),
    "taskiq": ("taskiq==0.13.0 taskiq-redis==1.2.4", 2_000),
    "celery": ("celery[redis]==5.7.0", 800),
    "rq": ("rq==2.12.0", 150),
    "bullmq (Python)": ("bullmq==3.4.4", 1_500),
}
NODE_PACKAGES = ("bullmq@6.7.0", "ioredis@5.11.1")
NODE_JOBS = 10_000


class Peer:
    """Another library in a folder of its own."""

    def __init__(self, name: str, command: list[str], port: int, jobs: int, *, is_python: bool) -> None:
        self.name = name
        self.is_python = is_python
        self._command = command
        self._port = port
        self.jobs = jobs

    def run(self, what: str, *, yields: bool = False) -> float | None:
        """Jobs per second; None if it fails, which is told."""
        done = subprocess.run(
            [*self._command, what, str(self.jobs), str(self._port), "1" if yields else "0"],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        try:
            return float(json.loads(done.stdout.strip().splitlines()[-1]))
        except (ValueError, IndexError):
            reason = (done.stderr.strip() or "no answer").splitlines()[-1]
            print(f"{self.name}: {what} failed ({reason[:120]})", flush=True)
            return None


def install_peers(folder: Path, port: int) -> list[Peer]:
    """Every peer that can be had."""
    peers = [_python_peer(folder, port, name, *what) for name, what in PYTHON_PEERS.items()]
    return [peer for peer in (*peers, _node_peer(folder, port)) if peer is not None]


def _python_peer(folder: Path, port: int, name: str, packages: str, jobs: int) -> Peer | None:
    short = name.partition(" ")[0]
    home = folder / short
    python, program = home / "bin" / "python", home / "bench.py"
    if not python.exists() and not _made(name, [sys.executable, "-m", "venv", str(home)]):
        return None
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages.split(), "hiredis"]
    if not _made(name, pip):
        return None
    texts = [(_PROGRAMS / f"{part}.txt").read_text(encoding="utf-8") for part in ("counting", short)]
    program.write_text("".join(texts), encoding="utf-8")
    return Peer(name, [str(python), str(program)], port, jobs, is_python=True)


def _node_peer(folder: Path, port: int) -> Peer | None:
    name, home = "bullmq (Node)", folder / "node"
    if shutil.which("npm") is None:
        print(f"{name}: no npm here, left out")
        return None
    home.mkdir(parents=True, exist_ok=True)
    if not _made(name, ["npm", "install", "--silent", "--no-fund", "--prefix", str(home), *NODE_PACKAGES]):
        return None
    shutil.copy(_PROGRAMS / "bullmq.mjs", home / "bench.mjs")
    return Peer(name, ["node", str(home / "bench.mjs")], port, NODE_JOBS, is_python=False)


def _made(name: str, command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: cannot be installed, left out ({(done.stderr or done.stdout).strip()[-120:]})", flush=True)
    return not done.returncode
