"""`python -m runforge_cli` is `runforge-cli`."""

from __future__ import annotations

from queueyard.runforge.cli import main

if __name__ == "__main__":
    main(prog_name="runforge-cli")
