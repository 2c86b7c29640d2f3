"""About how many rows a run goes through, which decides how Spark is set up. Needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.sources.positions import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.pipeline.sources.positions import Plan
    from queueyard.yard.places import Place

_ROW_BYTES = 250
_EVERYTHING_BYTES = 1 << 62


def rows_of(home: str, found: Plan | None = None) -> int:
    """The events that the tables have, and what a plan will bring."""
    return DeltaLog(f"{home}/silver/events").rows() + (found.bytes // _ROW_BYTES if found else 0)


def rows_ahead(home: str, places: Sequence[Place]) -> int:
    """The same for everything that is new now. SourceFailed for a place that cannot be asked."""
    return rows_of(home, plan(places, DeltaLog(f"{home}/bronze/lines").note(), most_bytes=_EVERYTHING_BYTES))
