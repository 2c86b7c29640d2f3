"""The console script `runforge-cli`: parse, call service, print; nothing else."""

from __future__ import annotations

import click

from queueyard.console import Script, version_option


@click.group(cls=Script, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("runforge-cli")
def main() -> None:
    """An execution queue for experiment runs and sweeps, fair by group.

    This version has no commands yet: the system is being built. `queueyard --help` lists what works.
    """
