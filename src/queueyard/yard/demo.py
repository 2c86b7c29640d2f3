"""`queueyard demo`: the systems at work in a throw-away yard, through their real commands.

Each scene types commands as a person would and says what must come of them. One that does something else ends the demo
with exit code 1; the yard then stays where it is, to be looked at. A scene whose parts are not on this machine is
skipped, and said to be.
"""

from __future__ import annotations

from pathlib import Path
import shutil
import tempfile
from typing import TYPE_CHECKING

from queueyard.yard.scenes import scenes
from queueyard.yard.scenes.stage import PartMissing, Stage

if TYPE_CHECKING:
    from queueyard.kernel.output import Output


def run_demo(out: Output, *, keep: bool) -> None:
    """Every scene in order. DemoFailed, and the yard stays, if one goes wrong. No process outlives it."""
    folder = Path(tempfile.mkdtemp(prefix="queueyard-demo-"))
    stage = Stage(folder, out)
    skipped: list[str] = []
    try:
        for system, scene in scenes().items():
            out.text(out.style(f"\n== {system} ==", "bold"))
            try:
                scene(stage)
            except PartMissing as missing:
                skipped.append(system)
                out.text(out.style(f"skipped: {missing}. {missing.hint}", "yellow"))
    finally:
        stage.close()
    out.text(out.style("\n== done ==", "bold"))
    shown = len(scenes()) - len(skipped)
    out.text(f"{shown} of 5 systems shown" + (f", skipped: {', '.join(skipped)}" if skipped else ""))
    if keep:
        out.text(f"The yard is yours: cd {folder} && queen --agent ana watch")
    else:
        shutil.rmtree(folder)
