"""`queueyard demo`: the systems at work in a throw-away yard, through their real commands.

Each scene types commands as a person would and says what must come of them. One that does something else ends the demo
with exit code 1; the yard then stays where it is, to be looked at. A scene whose parts are not on this machine is
skipped, and said to be. Whoever interrupts it, by Ctrl-C or TERM, leaves nothing behind: no process, no file.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
import shutil
import signal
import sys
import tempfile
from typing import TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.yard.scenes import SCENES, scenes
from queueyard.yard.scenes.stage import PartMissing, Stage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from queueyard.kernel.output import Output

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130


def run_demo(out: Output, *, keep: bool, only: Collection[str] = ()) -> None:
    """Every scene in order, or some. DemoFailed, and the yard stays, if one goes wrong. No process outlives it."""
    folder = Path(tempfile.mkdtemp(prefix="queueyard-demo-"))
    stage = Stage(folder, out)
    started = SYSTEM_CLOCK.monotonic()
    try:
        with _interruptible(stage):
            skipped = _show(stage, [name for name in SCENES if not only or name in only])
    except KeyboardInterrupt:
        _without_signals(stage)
        shutil.rmtree(folder, ignore_errors=True)
        out.note("\ninterrupted; nothing is left running, and nothing is left behind")
        sys.exit(_INTERRUPTED)
    except BaseException:
        _without_signals(stage)
        raise
    if keep:
        stage.keep(f"the yard is yours: cd {folder} && queueyard status")
    _without_signals(stage)
    if not keep:
        shutil.rmtree(folder)
    _sum_up(stage, skipped, SYSTEM_CLOCK.monotonic() - started)


def _show(stage: Stage, names: list[str]) -> list[str]:
    """Play the scenes; those that had to be skipped."""
    out, skipped = stage.out, []
    for number, name in enumerate(names, 1):
        out.text(out.style(f"\n== {number}/{len(names)} {name} ==", "bold"))
        try:
            scenes()[name](stage)
            stage.shown.append(name)
        except PartMissing as missing:
            skipped.append(name)
            out.text(out.style(f"skipped: {missing}. {missing.hint}", "yellow"))
    return skipped


def _sum_up(stage: Stage, skipped: list[str], seconds: float) -> None:
    out = stage.out
    out.text(out.style("\n== done ==", "bold"))
    for line in stage.kept:
        out.text(line)
    shown = f"{len(stage.shown)} of {len(stage.shown) + len(skipped)} scenes shown"
    out.text(shown + (f", skipped: {', '.join(skipped)}" if skipped else "") + f"; {seconds:.0f} s")


@contextmanager
def _interruptible(stage: Stage) -> Iterator[None]:
    """TERM ends the block as Ctrl-C does. Who started us with one of them ignored wants that."""
    heard = [number for number in _INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stage.interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _without_signals(stage: Stage) -> None:
    """End what runs; whoever is impatient must not keep it from that."""
    for number in _INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    stage.close()
