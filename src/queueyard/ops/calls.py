"""What every command of `jolli-ops` shares: the common options, the scope, and how answers are shown.

Imports of anything but click happen when a command runs, so that help stays fast.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import msgspec

    from queueyard.ops.database import Database
    from queueyard.ops.service import Ops
    from queueyard.ops.settings import ServeSettings

#: the queue is empty, but conflicts or dead letters wait for somebody
NEEDS_A_DECISION = 3

_COMMON = (
    click.option(
        "-C", "--folder", type=click.Path(), metavar="DIR", help="The folder that is kept in step; default: here."
    ),
    click.option("--server", metavar="URL", help="The server (else JOLLI_SERVER, ops.toml, http://127.0.0.1:3001)."),
    click.option("--space", metavar="NAME", help="The space on the server (else JOLLI_SPACE, ops.toml, default)."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


class Call:
    """One call of one command: which scope, and how to print."""

    def __init__(self, *, folder: str | None, server: str | None, space: str | None, as_json: bool) -> None:
        from pathlib import Path  # noqa: PLC0415

        from queueyard.kernel.output import Output  # noqa: PLC0415

        self.folder = Path(folder or ".")
        self.flags: dict[str, Any] = {"server": server, "space": space}
        self.as_json = as_json
        self.out = Output(as_json=as_json)

    def at(self, folder: str | None) -> Call:
        """The same call, with a folder that was named as an argument."""
        if folder is not None:
            from pathlib import Path  # noqa: PLC0415

            self.folder = Path(folder)
        return self

    def ops(self, **flags: Any) -> Ops:
        """The scope of the folder. NoWorkspace if that is not there."""
        from queueyard.ops.errors import NoWorkspace  # noqa: PLC0415
        from queueyard.ops.service import Ops  # noqa: PLC0415

        if not self.folder.is_dir():
            raise NoWorkspace(f"no such folder: {self.folder}", hint="Name one that is there: jolli-ops push DIR")
        return Ops.open(self.folder, **self.flags, **flags)

    def ops_without_folder(self, **flags: Any) -> Ops:
        """The scope of ops that come from elsewhere."""
        from queueyard.ops.service import Ops  # noqa: PLC0415

        return Ops.open(None, settings_from=self.folder, **self.flags, **flags)

    def known(self, **flags: Any) -> list[Ops]:
        """The scope of the folder and the one without a folder, as far as they were ever used."""
        from queueyard.ops.service import Ops  # noqa: PLC0415

        scopes = []
        if Ops.is_known(self.folder, **self.flags, **flags):
            scopes.append(Ops.open(self.folder, **self.flags, **flags))
        if Ops.is_known(None, settings_from=self.folder, **self.flags, **flags):
            scopes.append(self.ops_without_folder(**flags))
        return scopes

    def everywhere(self, **flags: Any) -> list[Ops]:
        """Every scope of this machine, whatever server it belongs to."""
        import os  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        from queueyard.ops.home import jolli_home, known_scopes  # noqa: PLC0415
        from queueyard.ops.service import Ops  # noqa: PLC0415

        return [
            Ops.open(
                Path(scope.workspace) if scope.workspace else None,
                **{"server": scope.server, "space": scope.space, **flags},
            )
            for _, scope in known_scopes(jolli_home(os.environ))
        ]

    # --- showing -----------------------------------------------------------------------------------------------------

    def show(self, value: msgspec.Struct | dict[str, Any], *lines: str) -> None:
        """One answer: the whole of it as JSON, or some lines."""
        if self.as_json:
            from queueyard.ops.records import to_raw  # noqa: PLC0415

            self.out.data(to_raw(value))
        else:
            for line in lines:
                self.out.text(line)

    def show_many(
        self, values: Sequence[Any], columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str
    ) -> None:
        """A list: an array as JSON (an empty one too), or a table, or one sentence if there is nothing."""
        if self.as_json:
            from queueyard.ops.records import to_raw  # noqa: PLC0415

            self.out.data([to_raw(value) for value in values])
        elif values:
            self.out.table(columns, rows)
        else:
            self.out.note(empty)


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, and a `Call` as its first argument; a flag before the command counts too."""

    @click.pass_context
    def run(
        ctx: click.Context,
        /,
        *args: Any,
        folder: str | None,
        server: str | None,
        space: str | None,
        as_json: bool,
        **options: Any,
    ) -> None:
        above: dict[str, Any] = ctx.obj or {}
        call = Call(
            folder=folder or above.get("folder"),
            server=server or above.get("server"),
            space=space or above.get("space"),
            as_json=as_json or bool(above.get("as_json")),
        )
        function(call, *args, **options)

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_COMMON):
        wrapped = option(wrapped)
    return wrapped


def common_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same options on the script itself: `jolli-ops --space docs push`."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


# --- the server's own commands ---------------------------------------------------------------------------------------

_DATA = (
    click.option("--data", type=click.Path(), metavar="DIR", help="The server's folder; default: jolli-data."),
    click.option("--database", metavar="URL", help="postgresql://... instead of the SQLite in --data."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


def with_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the commands that work on the server's own data, and how to print."""

    @click.pass_context
    def run(ctx: click.Context, /, *args: Any, as_json: bool, **options: Any) -> None:
        above: dict[str, Any] = ctx.obj or {}
        call = Call(folder=None, server=None, space=None, as_json=as_json or bool(above.get("as_json")))
        function(call, *args, **options)

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_DATA):
        wrapped = option(wrapped)
    return wrapped


def serve_settings(**flags: Any) -> ServeSettings:
    """The server's settings in force."""
    import os  # noqa: PLC0415

    from queueyard.ops.settings import load_serve  # noqa: PLC0415

    return load_serve(os.environ, {name: value for name, value in flags.items() if value is not None}).values


def open_data(data: str | None, database: str | None, *, must_exist: bool = True) -> Database:
    """The server's database. StorageFailed if there is none and there should be one."""
    from queueyard.ops.serving import open_database  # noqa: PLC0415

    return open_database(serve_settings(data=data, database=database), must_exist=must_exist)


def as_path(text: str) -> Path:
    from pathlib import Path  # noqa: PLC0415

    return Path(text)


def size_of(count: float) -> str:
    """Bytes for people: 512 B, 4.2 MB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def plural(count: int, noun: str) -> str:
    special = {"batch": "batches"}
    return f"{count} {noun if count == 1 else special.get(noun, noun + 's')}"
