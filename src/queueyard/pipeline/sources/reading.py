"""What the sources have in common towards Spark: work as JSON, and micro-batches by look and plan."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

_SeenT = TypeVar("_SeenT")


def partitions_of(pieces: Iterable[msgspec.Struct | list[Any]]) -> list[InputPartition]:
    return [InputPartition(msgspec.json.encode(piece).decode()) for piece in pieces]


class PlannedReader(DataSourceReader):
    """A batch whose pieces are known from the start; each is read by one task."""

    def __init__(self, pieces: Sequence[msgspec.Struct | list[Any]]) -> None:
        self._pieces = pieces

    def partitions(self) -> Sequence[InputPartition]:
        return partitions_of(self._pieces)


class LookingReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[_SeenT]):
    """Micro-batches whose offsets are the marks of a plan; Spark's checkpoint keeps them.

    Marks follow from the marks before them, so they are only ever planned from where the stream really stands. That is
    why `availableNow` is answered here by what was seen when it began, and not left to Spark, which would plan from
    the very first offset.
    """

    _held: list[_SeenT] | None = None

    @abstractmethod
    def look(self) -> list[_SeenT]:
        """What there is now."""

    @abstractmethod
    def marks_after(self, start: dict[str, Any], seen: list[_SeenT], limit: ReadLimit) -> Any:
        """The marks behind the next micro-batch."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._held = self.look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        seen = self.look() if self._held is None else self._held
        offset: dict[str, Any] = msgspec.to_builtins(self.marks_after(start, seen, limit))
        return offset

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: what was read is not ours to clear away."""
