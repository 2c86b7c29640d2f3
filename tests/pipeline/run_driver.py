"""One run in a process of its own, which a test may kill: HOME FOLDER BATCH_BYTES URL."""

from __future__ import annotations

from pathlib import Path
import sys

from queueyard.kernel.events import System
from queueyard.pipeline.run import run
from queueyard.pipeline.session import Spark, start
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import Place

#: whose histories the generator writes as files, and where
FOLDERS = {
    "queen": System.QUEEN,
    "runforge": System.RUNFORGE,
    "jjq": System.JJQ,
    "ops": System.OPS,
    "ops-client": System.OPS,
}


def places_in(folder: Path) -> list[Place]:
    return [Place(system=system, at=str(folder / name)) for name, system in FOLDERS.items()]


def main() -> None:
    home, folder, batch_bytes, url = sys.argv[1:]
    session = start(Spark(remote=url) if url.startswith("sc://") else Spark(master=url))
    run(Warehouse(session, home), places_in(Path(folder)), batch_bytes=int(batch_bytes))


if __name__ == "__main__":
    main()
