"""Several tables at once: small ones are mostly planning, which is the driver's work and leaves a core idle."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_AT_ONCE = 3


def together(makes: Iterable[Callable[[], None]]) -> None:
    """Call all of them, some at a time, in this order; raises what the first of them raises, once all have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        calls = [pool.submit(make) for make in makes]
    for call in calls:
        call.result()
