"""Spark turns what the other scenes left into tables, and the tables into pictures."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
import json
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.yard.parts import find_part
from queueyard.yard.scenes.stage import PartMissing

if TYPE_CHECKING:
    from queueyard.yard.scenes.stage import Stage

_PACKAGES = ("pyspark", "deltalake", "pyarrow", "matplotlib")
#: left in the folder where the demo was started
REPORT = "queueyard-report"
#: what the other scenes did, as the gold table of days must have it: (system, column) -> how often
_DONE = {
    ("runforge", "succeeded"): 12,
    ("panqueue", "succeeded"): 2_000,
    ("jjq", "succeeded"): 3,
    ("jjq", "failed"): 1,
}


def show_pipeline(stage: Stage) -> None:
    if any(find_spec(name) is None for name in _PACKAGES) or not find_part("java").found:
        raise PartMissing("the pipeline needs Spark and Java", hint="Type: pip install 'queueyard[pipeline,embedded]'")
    stage.say("Spark reads every place of the yard and brings all tables up to date. This takes most of the demo.")
    stage.type("queueyard pipeline run", contains="0 of them quarantined", shows_progress=True)
    _check_gold(stage)
    _write_report(stage)


def _check_gold(stage: Stage) -> None:
    """What the tables say must be what the scenes did."""
    from deltalake import DeltaTable  # noqa: PLC0415

    home = stage.folder / ".queueyard" / "pipeline"
    rows = DeltaTable(str(home / "gold" / "summary")).to_pyarrow_table().to_pylist()
    told: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for column in ("succeeded", "failed"):
            told[row["system"], column] += row[column]
    for (system, column), wanted in _DONE.items():
        if system in stage.shown:
            stage.out.text(f"    gold/summary: {told[system, column]:,} {column} in {system}")
            stage.expect(
                told[system, column] == wanted,
                f"the gold table tells {told[system, column]} {column} of {system} instead of {wanted}",
            )


def _write_report(stage: Stage) -> None:
    stage.say("The tables as one page with pictures; it stays when the demo is over.")
    folder = Path.cwd() / REPORT
    said = json.loads(stage.type(f"queueyard pipeline report --json --to '{folder}'"))
    for path in (said["page"], *said["pictures"]):
        stage.expect(Path(path).is_file(), f"{path} was not written")
    stage.keep(f"report: {said['page']}")
    stage.keep(f"pictures: {folder}/*.png ({len(said['pictures'])})")
