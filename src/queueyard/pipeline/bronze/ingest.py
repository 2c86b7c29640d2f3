"""From records to bronze: sound ones into `lines`, the others into `quarantine` with the reason.

Quarantine is written first and by replacing the batch, so that a batch that died before `lines` was committed may be
planned anew with other records. The positions of the sources stand in the commit of `lines`: a record is read exactly
if it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F

from queueyard.pipeline.errors import Unbalanced
from queueyard.pipeline.streams import judged
from queueyard.pipeline.tables import Written

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame

    from queueyard.pipeline.tables import Table


class Ingested(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch brought."""

    batch: int
    rows: int
    quarantined: int


def ingest(
    records: DataFrame,
    lines: Table,
    quarantine: Table,
    *,
    batch: int,
    positions: Mapping[str, Any],
    streams: Collection[str],
) -> Ingested:
    """Commit one batch. Unbalanced, and nothing committed, if what was read is not what was written."""
    seen = Observation()
    stamped = (
        records.transform(judged, streams)
        .withColumn("ingested_at", F.current_timestamp())
        .withColumn("batch", F.lit(batch).cast("long"))
    )
    counted = stamped.observe(seen, F.count(F.lit(1)).alias("rows"), F.count("reason").alias("rejected"))
    # The sources are read once, so what is refused is written beside what is sound, and from there to its own table.
    sound, aside = lines.write_split(counted, "reason")
    rows, rejected = seen.get["rows"], seen.get["rejected"]
    if sound.rows + rejected != rows:
        raise _unbalanced(batch, f"{rows} read, {sound.rows} written, {rejected} rejected")
    _set_aside(quarantine, lines.read_written(aside, split_by="reason"), rejected, batch=batch)
    lines.commit(sound, batch=batch, note=positions)
    return Ingested(batch=batch, rows=rows, quarantined=rejected)


def _set_aside(quarantine: Table, rows: DataFrame, rejected: int, *, batch: int) -> None:
    """Make these the only rows of the batch in quarantine: others are left by a try that died."""
    if rejected:
        refused = quarantine.write(rows)
        if refused.rows != rejected:
            raise _unbalanced(batch, f"{rejected} rejected, {refused.rows} written to quarantine")
    elif any(file.partition["batch"] == str(batch) for file in quarantine.log.files()):
        refused = Written.of([])
    else:
        return
    quarantine.overwrite(refused, only=[("batch", "=", str(batch))])


def _unbalanced(batch: int, what: str) -> Unbalanced:
    return Unbalanced(
        f"batch {batch} does not add up ({what}); a source changed while it was read. Nothing was committed.",
        hint="Run it again: the batch is read anew.",
    )
