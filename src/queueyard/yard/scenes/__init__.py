"""The scenes of `queueyard demo`, one per system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.yard.scenes.stage import Stage


def scenes() -> dict[str, Callable[[Stage], None]]:
    """System -> its scene, in the order in which they are shown. Imports nothing of a system yet."""
    from queueyard.yard.scenes.jjq import show_jjq  # noqa: PLC0415
    from queueyard.yard.scenes.ops import show_ops  # noqa: PLC0415
    from queueyard.yard.scenes.panqueue import show_panqueue  # noqa: PLC0415
    from queueyard.yard.scenes.queen import show_queen  # noqa: PLC0415
    from queueyard.yard.scenes.runforge import show_runforge  # noqa: PLC0415

    return {
        "queen": show_queen,
        "runforge": show_runforge,
        "panqueue": show_panqueue,
        "jjq": show_jjq,
        "ops": show_ops,
    }
