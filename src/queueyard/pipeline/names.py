"""The names of all tables, for commands that read logs and start no Spark. A test holds them to the schemas."""

from __future__ import annotations

BRONZE_NAMES = ("bronze/lines", "bronze/quarantine")
SILVER_NAMES = (
    "silver/events",
    "silver/items",
    "silver/attempts",
    "silver/messages",
    "silver/assignments",
    "silver/reservations",
    "silver/file_versions",
    "silver/files",
)
GOLD_NAMES = (
    "gold/throughput",
    "gold/durations",
    "gold/failures",
    "gold/retries",
    "gold/fairness",
    "gold/landing",
    "gold/agents",
    "gold/contention",
    "gold/sync",
    "gold/summary",
)
QUALITY_NAMES = ("quality/violations",)
TABLE_NAMES = (*BRONZE_NAMES, *SILVER_NAMES, *GOLD_NAMES, *QUALITY_NAMES)
