"""Every data source of ours, for the session to register."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.pipeline.sources.feeds import FeedSource
from queueyard.pipeline.sources.lines import LineSource
from queueyard.pipeline.sources.redis_streams import RedisSource
from queueyard.pipeline.sources.snapshots import SnapshotSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

SOURCES: tuple[type[DataSource], ...] = (LineSource, SnapshotSource, RedisSource, FeedSource)
