"""The scenes of `queueyard demo`: one per system, then all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.yard.scenes.stage import Stage

#: in the order in which they are shown
SCENES = ("queen", "runforge", "panqueue", "jjq", "ops", "yard", "pipeline", "dashboard")


def scenes() -> dict[str, Callable[[Stage], None]]:
    """Every scene by its name. Imports nothing of a system yet."""
    from queueyard.yard.scenes.dashboard import show_dashboard  # noqa: PLC0415
    from queueyard.yard.scenes.jjq import show_jjq  # noqa: PLC0415
    from queueyard.yard.scenes.ops import show_ops  # noqa: PLC0415
    from queueyard.yard.scenes.panqueue import show_panqueue  # noqa: PLC0415
    from queueyard.yard.scenes.pipeline import show_pipeline  # noqa: PLC0415
    from queueyard.yard.scenes.queen import show_queen  # noqa: PLC0415
    from queueyard.yard.scenes.runforge import show_runforge  # noqa: PLC0415
    from queueyard.yard.scenes.yard import show_yard  # noqa: PLC0415

    shown = (show_queen, show_runforge, show_panqueue, show_jjq, show_ops, show_yard, show_pipeline, show_dashboard)
    return dict(zip(SCENES, shown, strict=True))
