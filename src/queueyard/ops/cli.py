"""The console script `jolli-ops`: parse, call service, print; nothing else."""

from __future__ import annotations

import click

from queueyard.console import Script, version_option


@click.group(cls=Script, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("jolli-ops")
def main() -> None:
    """Resumable pushes of file operations in durable batches.

    This version has no commands yet: the system is being built. `queueyard --help` lists what works.
    """
