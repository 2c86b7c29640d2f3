"""Realistic histories of the five systems in their own formats, for tests, benchmarks and demos.

    from queueyard.pipeline.generator import generate
    generate(Path("histories"), events=100_000, seed=7)

The same seed gives the same bytes, whatever the folder, the clock or the number of processes. Memory does not grow
with the number of events. Nothing here knows Spark, and of the systems only their records and events.
"""

from __future__ import annotations

from queueyard.pipeline.generator.histories import (
    FolderInUse as FolderInUse,
)
from queueyard.pipeline.generator.histories import (
    Generated as Generated,
)
from queueyard.pipeline.generator.histories import (
    generate as generate,
)
from queueyard.pipeline.generator.writing import StreamCount as StreamCount
