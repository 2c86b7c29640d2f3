"""The demo and the page that follows it speak of the same scenes."""

from __future__ import annotations

from pathlib import Path
import re

from queueyard.yard.scenes import SCENES, scenes


def test_the_tour_follows_the_demo() -> None:
    tour = (Path(__file__).parents[3] / "docs" / "tour.md").read_text(encoding="utf-8")
    demo = tour.partition("## The demo")[2].partition("\n## ")[0]

    assert tuple(re.findall(r"^### (\w+)$", demo, re.MULTILINE)) == SCENES


def test_every_scene_can_be_played() -> None:
    assert tuple(scenes()) == SCENES
