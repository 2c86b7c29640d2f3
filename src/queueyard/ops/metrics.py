"""Counters of the server, in the text format that Prometheus reads. No library: there are a dozen numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_HELP = {
    "jolli_ops_requests_total": ("counter", "Requests answered, by route and status."),
    "jolli_ops_ops_total": ("counter", "Ops answered, by what became of them."),
    "jolli_ops_batches_total": ("counter", "Batches answered, applied or replayed."),
    "jolli_ops_received_bytes_total": ("counter", "Bytes of request bodies."),
    "jolli_ops_waiting_batches": ("gauge", "Batches that wait for the writer."),
    "jolli_ops_waiting_bytes": ("gauge", "Bytes of the batches that wait for the writer."),
    "jolli_ops_ready": ("gauge", "1 while the server takes requests."),
    "jolli_ops_request_seconds": ("histogram", "How long requests took, by route."),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What happened since the server started. Safe from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        with self._guard:
            self._counts[name, tuple(sorted(labels.items()))] += amount

    def took(self, route: str, seconds: float) -> None:
        with self._guard:
            buckets = self._buckets.setdefault(route, [0] * (len(_BUCKETS_S) + 1))
            buckets[bisect_left(_BUCKETS_S, seconds)] += 1
            self._sums[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, float]) -> str:
        """Everything, as Prometheus reads it; `gauges` are measured by the caller at this moment."""
        with self._guard:
            counts = sorted(self._counts.items())
            histograms = {route: (list(row), float(self._sums[route])) for route, row in sorted(self._buckets.items())}
        lines: list[str] = []
        for name, (kind, told) in _HELP.items():
            lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value}" for (known, labels), value in counts if known == name]
            if name in gauges:
                lines.append(f"{name} {gauges[name]:g}")
            if kind == "histogram":
                for route, (row, total) in histograms.items():
                    lines += _histogram(name, route, row, total)
        return "\n".join(lines) + "\n"


def _histogram(name: str, route: str, row: list[int], total: float) -> list[str]:
    lines, below = [], 0
    for bound, count in zip([*map(str, _BUCKETS_S), "+Inf"], row, strict=True):
        below += count
        lines.append(f"{name}_bucket{_labels((('le', bound), ('route', route)))} {below}")
    route_label = _labels((("route", route),))
    return [*lines, f"{name}_sum{route_label} {total:.6f}", f"{name}_count{route_label} {below}"]


def _labels(labels: Labels) -> str:
    # The values are routes, statuses and codes of ours: nothing in them needs escaping.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
