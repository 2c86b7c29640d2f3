"""`queueyard units`: files for whoever runs Queueyard as services."""

from __future__ import annotations

from pathlib import Path
import sys

import click

from queueyard.console import examples, json_option, tell_findings
from queueyard.kernel.output import Output


@click.command(
    epilog=examples(
        "queueyard units",
        "queueyard units --out /etc/systemd/system",
        "queueyard units --out /etc/systemd/system --check",
    )
)
@click.option("--out", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write them.")
@click.option("--check", "and_check", is_flag=True, help="Write nothing; look for faults, and for other files in DIR.")
@click.option("--prefix", metavar="DIR", help="Where Queueyard is installed.  [default: where this one is]")
@click.option("--page", "as_page", is_flag=True, help="Print the page of the documents instead.")
@json_option
def units(folder: Path | None, and_check: bool, prefix: str | None, as_page: bool, as_json: bool) -> None:
    """Print unit files for systemd, and a container file: daemon, workers, runner, server, dashboard, pipeline.

    With --check the exit code is 1 if something is wrong.
    """
    from queueyard.yard.units import examine, page, unit_files, write  # noqa: PLC0415

    out = Output(as_json=as_json)
    files = unit_files(prefix or sys.prefix)
    if as_page:
        click.echo(page(), nl=False)
    elif and_check:
        tell_findings(out, examine(files, folder))
    elif folder is not None:
        written = [str(path) for path in write(files, folder)]
        out.data(written) if as_json else out.text("\n".join(written))
    elif as_json:
        out.data(files)
    else:
        for name, text in files.items():
            out.text(out.style(f"# --- {name}", "bold"))
            out.text(text)
