"""`queueyard dashboard`: parse, start, say where it is."""

from __future__ import annotations

import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import examples, json_option
from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from queueyard.dashboard.app import Dashboard
    from queueyard.dashboard.settings import DashboardSettings


@click.command(
    epilog=examples(
        "queueyard dashboard",
        "queueyard dashboard --open --allow-actions",
        "queueyard dashboard --host 0.0.0.0 --token-file ~/.config/queueyard/token --name yard.example.org",
    )
)
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="0 for any that is free.  [default: 8600]")
@click.option("--allow-actions", is_flag=True, default=None, help="Let people retry, pause, resume and cancel.")
@click.option("--token-file", type=click.Path(), metavar="FILE", help="The token (else QUEUEYARD_DASHBOARD_TOKEN).")
@click.option("--name", metavar="HOST", help="The name under which others reach it, for example behind a proxy.")
@click.option("--refresh-s", type=float, metavar="S", help="Seconds between two looks at the yard.  [default: 2]")
@click.option("--open", "and_open", is_flag=True, help="Open it in the browser.")
@click.option("--yard", "yard_folder", type=click.Path(), metavar="DIR", help="The yard; default: found upwards.")
@click.option("--home", metavar="DIR", help="Where the gold tables are; default: as for queueyard pipeline.")
@json_option
def main(and_open: bool, yard_folder: str | None, home: str | None, as_json: bool, **flags: Any) -> None:
    """Show the yard as a web page: what waits, runs and failed, live; and its history from the gold tables.

    It reads only, unless --allow-actions is given; then who acts must sign in with the token, which is made and shown
    once where none is set. Without a token it is for this machine alone. Ctrl-C ends it.
    """
    from queueyard.dashboard.settings import load  # noqa: PLC0415
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415
    from queueyard.kernel.log import start_logging  # noqa: PLC0415

    out = Output(as_json=as_json)
    settings = load(os.environ, flags).values
    dashboard = _dashboard(settings, out, yard_folder=yard_folder, home=home)
    start_logging()
    from queueyard.dashboard.serving import serve  # noqa: PLC0415

    def on_listening(url: str) -> None:
        if as_json:
            out.data({"url": url})
        else:
            out.text(f"listening on {url}")
        sys.stdout.flush()
        if and_open:
            click.launch(url)

    with Lifecycle().on_signals() as lifecycle:
        serve(dashboard, settings, lifecycle, on_listening=on_listening)


def _dashboard(settings: DashboardSettings, out: Output, *, yard_folder: str | None, home: str | None) -> Dashboard:
    """Everything that it needs, or the reason why it cannot be: MissingExtra, NotLoopback, BadSettings."""
    from queueyard.dashboard.errors import MissingExtra  # noqa: PLC0415

    try:
        from queueyard.dashboard.app import Dashboard  # noqa: PLC0415
        from queueyard.dashboard.gold import Gold  # noqa: PLC0415
        from queueyard.dashboard.guard import Keys  # noqa: PLC0415
    except ImportError as fault:
        raise MissingExtra(f"the dashboard needs {fault.name}", hint="pip install 'queueyard[dashboard]'") from fault
    from queueyard.pipeline.settings import home_of  # noqa: PLC0415
    from queueyard.pipeline.settings import load as load_pipeline  # noqa: PLC0415
    from queueyard.yard.places import open_yard  # noqa: PLC0415

    start = Path(yard_folder or ".").resolve()
    tables = home_of(load_pipeline(os.environ, home=home).values, Path(open_yard(start).root))
    names = {name.lower() for name in (settings.host, settings.name) if name}
    keys = Keys(token=_token(settings, out), names=frozenset(names), is_beyond=settings.is_beyond)
    return Dashboard(
        lambda: open_yard(start),
        Gold(tables),
        keys,
        allow_actions=settings.allow_actions,
        refresh_s=settings.refresh_s,
    )


def _token(settings: DashboardSettings, out: Output) -> str | None:
    import secrets  # noqa: PLC0415

    from queueyard.dashboard.errors import NotLoopback  # noqa: PLC0415
    from queueyard.dashboard.settings import TOKEN_VARIABLE, load_token  # noqa: PLC0415

    token = load_token(settings, os.environ)
    if token is None and settings.is_beyond:
        raise NotLoopback(
            "it would listen beyond this machine, and everybody could look: there is no token",
            hint=f"Name one: --token-file FILE    or: export {TOKEN_VARIABLE}=...",
        )
    if token is None and settings.allow_actions:
        token = secrets.token_urlsafe(24)
        out.note(f"sign in with this token, which is good until the dashboard ends: {token}")
    return token
