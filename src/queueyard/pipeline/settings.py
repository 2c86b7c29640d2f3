"""Where the pipeline keeps its tables and how it starts Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from queueyard.kernel.settings import Layer, Settled, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

#: below the root of the yard
DEFAULT_HOME = ".queueyard/pipeline"


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set, with its default."""

    #: where the tables are: a folder, or an address that Spark and delta-rs both know
    home: str | None = None
    #: for example local[2] or spark://host:7077
    master: str | None = None
    #: for example sc://host:15002, or local
    remote: str | None = None
    #: memory of the driver
    memory: str = "1200m"


def load(
    environment: Mapping[str, str],
    *,
    home: str | None = None,
    master: str | None = None,
    remote: str | None = None,
    memory: str | None = None,
) -> Settled[PipelineSettings]:
    """The settings in force. BadSettings lists every fault at once."""
    names = PipelineSettings.__struct_fields__
    spelling = {name: f"QUEUEYARD_PIPELINE_{name.upper()}" for name in names}
    return settle(
        PipelineSettings,
        [
            Layer(name="flag", values={"home": home, "master": master, "remote": remote, "memory": memory}),
            Layer(
                name="environment",
                values={name: environment.get(variable) or None for name, variable in spelling.items()},
                spelling=spelling,
            ),
        ],
    )


def home_of(settings: PipelineSettings, yard_root: Path) -> str:
    """Where the tables are: as set, or below the root of the yard."""
    if settings.home is None:
        return str(yard_root / DEFAULT_HOME)
    return settings.home if "://" in settings.home else str(Path(settings.home).expanduser().resolve())


def folder_of(home: str) -> Path | None:
    """The folder that a home is; None for one that is in no file system of this machine."""
    address = urlsplit(home)
    if "://" not in home:
        return Path(home)
    return Path(unquote(address.path)) if address.scheme == "file" else None
