"""`jolli-ops serve`, `space`, `token`, `export`: the server's side, on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import Script, examples
from queueyard.ops.calls import Call, as_path, open_data, plural, serve_settings, with_data

if TYPE_CHECKING:
    from queueyard.ops.export import Source
    from queueyard.ops.ledger import Ledger


@click.command(
    epilog=examples(
        "jolli-ops serve --port 3001 --data jolli-data",
        "jolli-ops serve --space docs --space notes",
        "jolli-ops serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
        "jolli-ops serve --database postgresql://ops@db.example.org/ops",
    )
)
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="0 for any that is free.  [default: 3001]")
@click.option("--space", "spaces", multiple=True, metavar="NAME", help="Make this space, unless it is there.")
@click.option("--require-token", is_flag=True, default=None, help="Ask for a token on loopback too.")
@click.option("--tls-cert", type=click.Path(), metavar="FILE", help="The certificate, PEM.")
@click.option("--tls-key", type=click.Path(), metavar="FILE", help="Its key, PEM.")
@click.option("--max-ops", type=int, metavar="N", help="Ops per batch.  [default: 500]")
@click.option("--max-body-bytes", type=int, metavar="N", help="Bytes per request.  [default: 10485760]")
@click.option("--max-decompressed-bytes", type=int, metavar="N", hidden=True)
@click.option("--max-content-bytes", type=int, metavar="N", hidden=True)
@click.option("--max-waiting", type=int, metavar="N", hidden=True)
@click.option("--max-waiting-bytes", type=int, metavar="N", hidden=True)
@click.option("--body-timeout-s", type=float, metavar="S", hidden=True)
@click.option("--rate-per-s", type=int, metavar="N", help="Requests a second per token.  [default: 200]")
@click.option("--keep-answers", metavar="TIME", help="How long an answer can be asked for again.  [default: 30d]")
@click.option("-v", "--verbose", is_flag=True, help="Log every request.")
@with_data
def serve(call: Call, spaces: tuple[str, ...], verbose: bool, **flags: Any) -> None:
    """Serve spaces to clients, until it is asked to stop.

    On this machine nobody needs a token. To listen beyond it, make one first: jolli-ops token create. The first Ctrl-C
    lets running requests finish, the second ends at once.
    """
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415
    from queueyard.kernel.log import start_logging  # noqa: PLC0415
    from queueyard.ops.serving import serve as run  # noqa: PLC0415

    settings = serve_settings(**flags)
    _check_slugs(spaces)
    start_logging(verbose=verbose)

    def on_listening(url: str) -> None:
        where = "PostgreSQL" if settings.database else settings.data
        call.show({"url": url, "data": where}, f"listening on {url}, data in {where}")
        sys.stdout.flush()

    with Lifecycle().on_signals() as lifecycle:
        run(settings, lifecycle, spaces=spaces, on_listening=on_listening)


@click.group(cls=Script, epilog=examples("jolli-ops space list", "jolli-ops space create docs"))
def space() -> None:
    """See and make the spaces of a server."""


@space.command("list")
@with_data
def list_spaces(call: Call, data: str | None, database: str | None) -> None:
    """List the spaces, with the last number of their feeds."""
    from queueyard.ops import views  # noqa: PLC0415

    with _ledger(data, database) as ledger:
        found = views.spaces(ledger)
    rows = [(one.slug, one.tenant, one.head, one.audit_head, one.created_at) for one in found]
    call.show_many(found, ("SPACE", "TENANT", "CHANGES", "REFUSALS", "SINCE"), rows, "No spaces.")


@space.command("create")
@click.argument("name")
@click.option("--tenant", default="default", show_default=True)
@with_data
def create_space(call: Call, name: str, tenant: str, data: str | None, database: str | None) -> None:
    """Make a space."""
    _check_slugs((name, tenant))
    with _ledger(data, database, must_exist=False) as ledger:
        is_new = bool(ledger.create_spaces(name, tenant=tenant))
    call.show({"space": name, "created": is_new}, f"{name} {'is made' if is_new else 'was there already'}")


@click.group(
    cls=Script,
    epilog=examples("jolli-ops token create --name ci --scope push --space docs", "jolli-ops token revoke 3f2a9c"),
)
def token() -> None:
    """Make, list and revoke the tokens of a server."""


@token.command("create", epilog=examples("jolli-ops token create --name ana --scope read --scope push --expires 90d"))
@click.option("--name", required=True, help="Whose it is; stands in the feed as the user.")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(["read", "push", "admin"]), help="[default: read and push]"
)
@click.option("--space", "spaces", multiple=True, metavar="NAME", help="Only for these.  [default: all]")
@click.option("--tenant", default="default", show_default=True)
@click.option("--rate-per-s", type=int, metavar="N", help="Requests a second; 0: as many as it likes.")
@click.option("--expires", metavar="TIME", help="After this it is no longer valid: 90d.")
@with_data
def create_token(
    call: Call,
    name: str,
    scopes: tuple[str, ...],
    spaces: tuple[str, ...],
    tenant: str,
    rate_per_s: int | None,
    expires: str | None,
    data: str | None,
    database: str | None,
) -> None:
    """Make a token and print it, once: only its digest is kept. Give it to the client as JOLLI_TOKEN."""
    from queueyard.kernel.clock import SYSTEM_CLOCK, parse_duration  # noqa: PLC0415
    from queueyard.ops import access  # noqa: PLC0415
    from queueyard.ops.records import to_raw  # noqa: PLC0415

    _check_slugs((tenant, *spaces))
    with _ledger(data, database, must_exist=False) as ledger:
        made, text = access.create_token(
            ledger,
            name=name,
            scopes=scopes or ("read", "push"),
            spaces=spaces or (access.EVERY_SPACE,),
            tenant=tenant,
            rate_per_s=rate_per_s,
            lives=parse_duration(expires) if expires else None,
            clock=SYSTEM_CLOCK,
        )
    call.show({**to_raw(made), "token": text}, text)
    call.out.note(f"token {made.id} for {name}: {', '.join(made.scopes)} on {', '.join(made.spaces)}")


@token.command("list")
@with_data
def list_tokens(call: Call, data: str | None, database: str | None) -> None:
    """List the tokens, without their secrets."""
    from queueyard.ops import access  # noqa: PLC0415

    with _ledger(data, database) as ledger:
        found = access.tokens(ledger)
    rows = [
        (one.id, one.name, " ".join(one.scopes), " ".join(one.spaces), one.expires_at, one.revoked_at) for one in found
    ]
    call.show_many(found, ("ID", "NAME", "SCOPES", "SPACES", "EXPIRES", "REVOKED"), rows, "No tokens.")


@token.command("revoke")
@click.argument("identifier", metavar="ID")
@with_data
def revoke_token(call: Call, identifier: str, data: str | None, database: str | None) -> None:
    """From now on nobody gets in with this token."""
    from queueyard.kernel.clock import SYSTEM_CLOCK  # noqa: PLC0415
    from queueyard.ops import access  # noqa: PLC0415

    with _ledger(data, database) as ledger:
        revoked = access.revoke_token(ledger, identifier, clock=SYSTEM_CLOCK)
    call.show(revoked, f"token {revoked.id} of {revoked.name} is revoked")


@click.command(
    epilog=examples("jolli-ops export --data jolli-data --to feed", "jolli-ops export --to feed --space docs --content")
)
@click.option("--to", "target", required=True, type=click.Path(), metavar="DIR", help="Where the segments go.")
@click.option("--space", "slug", metavar="NAME", help="Only this space; default: all.")
@click.option("--tenant", default="default", show_default=True)
@click.option("--content", is_flag=True, help="With the text of each version, not only its hash.")
@click.option("--rows", type=click.IntRange(min=1), default=50_000, show_default=True, help="Entries per segment.")
@with_data
def export(
    call: Call,
    target: str,
    slug: str | None,
    tenant: str,
    content: bool,
    rows: int,
    data: str | None,
    database: str | None,
) -> None:
    """Write the change feed and the audit stream as JSONL segments with a manifest.

    Each run adds what is new since the last one; a segment appears whole and never changes.
    """
    from queueyard.ops import views  # noqa: PLC0415
    from queueyard.ops.export import export as write  # noqa: PLC0415

    _check_slugs((slug,) if slug else ())
    with _ledger(data, database) as ledger:
        wanted = [one.slug for one in views.spaces(ledger) if one.tenant == tenant and slug in {None, one.slug}]
        done = [
            write(
                _source(ledger, tenant, name, content=content),
                as_path(target) / name,
                space=name,
                rows_per_segment=rows,
            )
            for name in wanted
        ]
    table = [
        (name, one.changes, one.audit, len(one.segments), one.last_change)
        for name, one in zip(wanted, done, strict=True)
    ]
    call.show_many(done, ("SPACE", "NEW CHANGES", "NEW REFUSALS", "SEGMENTS", "UP TO"), table, "No such space.")
    if not call.as_json:
        call.out.note(f"{plural(sum(len(one.segments) for one in done), 'segment')} written to {target}")


# --- inside ----------------------------------------------------------------------------------------------------------


class _ledger:  # noqa: N801  reads as a word in `with`
    """The server's books while a command looks into them."""

    def __init__(self, data: str | None, database: str | None, *, must_exist: bool = True) -> None:
        self._arguments = (data, database)
        self._must_exist = must_exist

    def __enter__(self) -> Ledger:
        from queueyard.ops.ledger import Ledger  # noqa: PLC0415

        self._ledger = Ledger(open_data(*self._arguments, must_exist=self._must_exist))
        self._ledger.create()
        return self._ledger

    def __exit__(self, *_: object) -> None:
        self._ledger.close()


def _source(ledger: Ledger, tenant: str, slug: str, *, content: bool) -> Source:
    from queueyard.ops import views  # noqa: PLC0415
    from queueyard.ops.export import Source  # noqa: PLC0415
    from queueyard.ops.ledger import SpaceName  # noqa: PLC0415

    name = SpaceName(tenant, slug)
    most = views.MOST_ENTRIES_PER_PAGE
    return Source(
        changes=lambda after: views.feed(ledger, name, after=after, limit=most, content=content),
        audit=lambda after: views.audit(ledger, name, after=after, limit=most),
    )


def _check_slugs(names: tuple[str, ...]) -> None:
    import re  # noqa: PLC0415

    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or ".." in name:
            raise click.UsageError(f"{name!r} is no name: letters, digits, '-', '_' and single dots, 64 at most.")
