"""Which parts of a system's details its page shows, in which columns, and what may be done to a row. Data only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.dashboard.panels import jjq, ops, panqueue, queen, runforge
from queueyard.kernel.events import System

if TYPE_CHECKING:
    from queueyard.dashboard.panels.shapes import Panel

PANELS: dict[System, tuple[Panel, ...]] = {
    System.QUEEN: queen.PANELS,
    System.RUNFORGE: runforge.PANELS,
    System.PANQUEUE: panqueue.PANELS,
    System.JJQ: jjq.PANELS,
    System.OPS: ops.PANELS,
}
