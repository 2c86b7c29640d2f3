"""What the dashboard may refuse.

DashboardError
|-- MissingExtra     a library that it needs is not installed
|-- NotLoopback      it would show the yard beyond this machine, and there is no token
`-- NotFound         there is no such page, place, item or chart
"""

from __future__ import annotations

from queueyard.kernel.errors import QueueyardError


class DashboardError(QueueyardError):
    """Anything that this package refuses."""


class MissingExtra(DashboardError):
    """A library that it needs is not installed."""


class NotLoopback(DashboardError):
    """It would listen beyond this machine without a token."""


class NotFound(DashboardError):
    """There is no such page."""
