"""The console script `jjq`: parse, call service, print; nothing else."""

from __future__ import annotations

import click

from queueyard.console import Script, version_option


@click.group(cls=Script, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("jjq")
def main() -> None:
    """A local merge queue for the jj version control system.

    This version has no commands yet: the system is being built. `queueyard --help` lists what works.
    """
