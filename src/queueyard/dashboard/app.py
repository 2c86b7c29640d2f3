"""The web application: routes, and what each answers with. Pages come from pages.py, who may ask is guard.py's.

Whatever looks at a place happens in a thread.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from queueyard.dashboard import pages
from queueyard.dashboard.answers import Answers, form_of, table
from queueyard.dashboard.charts import CHARTS
from queueyard.dashboard.errors import NotFound
from queueyard.dashboard.guard import COOKIE, Guard, Keys
from queueyard.dashboard.live import Live
from queueyard.dashboard.sharing import Shared
from queueyard.dashboard.span import DEFAULT_RANGE, RANGES, Span
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import System
from queueyard.yard.actions import Noun, Verb, act
from queueyard.yard.details.parts import Wanted
from queueyard.yard.places import shown
from queueyard.yard.status import glances

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from queueyard.dashboard.gold import Gold
    from queueyard.yard.places import Yard

_log = logging.getLogger("queueyard.dashboard")
_HERE = Path(__file__).parent
_LONGEST_FILTER = 200


class Dashboard:
    """One yard, shown."""

    def __init__(
        self,
        open_yard: Callable[[], Yard],
        gold: Gold,
        keys: Keys,
        *,
        allow_actions: bool = False,
        refresh_s: float = 2.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`open_yard` is asked again for every look, so that a place that is added is seen."""
        self._open_yard = open_yard
        self._gold = gold
        self._keys = keys
        self._allow_actions = allow_actions
        self._clock = clock
        self.live = Live(lambda: glances(open_yard()), every_s=refresh_s, clock=clock)
        self._shared = Shared(refresh_s, clock=clock)
        self._answers = Answers(keys, allow_actions=allow_actions)
        inner = Starlette(
            routes=[
                Route("/", self._overview),
                Route("/system/{system}", self._system),
                Route("/system/{system}/{place}/{panel}.csv", self._panel_csv),
                Route("/log/{place}/{item:path}", self._log),
                Route("/analytics", self._analytics),
                Route("/analytics/{chart}.csv", self._chart_csv),
                Route("/api/overview", self._overview_json),
                Route("/live", self._events),
                Route("/act", self._act, methods=["POST"]),
                Route("/login", self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Mount("/static", StaticFiles(directory=_HERE / "static")),
            ],
            exception_handlers={
                HTTPException: self._answers.no_page,
                QueueyardError: self._answers.refused,
                Exception: self._answers.failed,
            },
            lifespan=self._lifespan,
        )
        # Outermost, so that an answer to a bug carries the policy too.
        self.app = Guard(inner, keys)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(self.live.run())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    # --- pages -------------------------------------------------------------------------------------------------------

    async def _overview(self, request: Request) -> Response:
        snapshot = await self.live.snapshot()
        yard = await asyncio.to_thread(self._open_yard)
        return self._answers.page(
            request, "overview", snapshot=snapshot, root=yard.root, history=self.live.history, title="Overview"
        )

    async def _system(self, request: Request) -> Response:
        system = pages.system_of(request.path_params["system"])
        wanted, only = _wanted(request), request.query_params.get("place", "")
        snapshot = await self.live.snapshot()
        yard = await asyncio.to_thread(self._open_yard)
        found = await self._shared.get((system, wanted, only), lambda: pages.sections(yard, system, wanted, only))
        return self._answers.page(
            request,
            "system",
            system=system,
            sections=found,
            places=[(pages.key_of(place), shown(place)) for place in yard.places if place.system is system],
            glances={one.at: one for one in snapshot.glances if one.system is system},
            wanted=wanted,
            only=only,
            title=str(system),
        )

    async def _analytics(self, request: Request) -> Response:
        span = self._span(request)
        drawn = await asyncio.to_thread(
            lambda: [
                (chart, chart.drawn(self._gold.rows(chart.table), span))
                for chart in CHARTS
                if span.system in {"", chart.system} or not chart.system
            ]
        )
        committed_at = await asyncio.to_thread(self._gold.committed_at)
        return self._answers.page(
            request,
            "analytics",
            charts=drawn,
            span=span,
            ranges=list(RANGES),
            committed_at=committed_at,
            title="Analytics",
        )

    async def _log(self, request: Request) -> Response:
        yard = await asyncio.to_thread(self._open_yard)
        place = pages.place_of(yard, request.path_params["place"])
        item = request.path_params["item"]
        found = await asyncio.to_thread(pages.log_of, place, item)
        return self._answers.page(request, "log", place=place, item=item, log=found, title=f"Log of {item}")

    async def _login(self, request: Request) -> Response:
        if self._keys.token is None:
            raise NotFound("This dashboard has no token.", hint="Start it with one: queueyard dashboard --token-file")
        if request.method == "GET":
            return self._answers.page(request, "login", refused=False, title="Sign in")
        form = await form_of(request)
        if not self._keys.fits(form.get("token", [""])[0].strip()):
            return self._answers.page(request, "login", refused=True, title="Sign in", status=403)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, self._keys.session, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer

    async def _logout(self, _: Request) -> Response:
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE)
        return answer

    # --- data --------------------------------------------------------------------------------------------------------

    async def _overview_json(self, _: Request) -> Response:
        return Response(msgspec.json.encode(await self.live.snapshot()), media_type="application/json")

    async def _panel_csv(self, request: Request) -> Response:
        yard = await asyncio.to_thread(self._open_yard)
        place = pages.place_of(yard, request.path_params["place"])
        wanted = Wanted(text=_wanted(request).text, limit=pages.LARGEST_LIMIT)
        found = await asyncio.to_thread(pages.section, place, wanted)
        panel = next((one for one in found.panels if one.panel.name == request.path_params["panel"]), None)
        if panel is None:
            raise NotFound(found.problem or "There is no such table.")
        names = [column.name for column in panel.panel.columns]
        return table(names, ([getattr(view.row, name) for name in names] for view in panel.rows))

    async def _chart_csv(self, request: Request) -> Response:
        chart = next((one for one in CHARTS if one.name == request.path_params["chart"]), None)
        if chart is None:
            raise NotFound("There is no such chart.")
        span = self._span(request)
        drawn = await asyncio.to_thread(lambda: chart.drawn(self._gold.rows(chart.table), span))
        return table(drawn.columns, ([row[name] for name in drawn.columns] for row in drawn.rows))

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(self.live.events(), media_type="text/event-stream")

    # --- actions -----------------------------------------------------------------------------------------------------

    async def _act(self, request: Request) -> Response:
        if not self._allow_actions:
            return self._answers.said(request, "Nothing can be changed here: start with --allow-actions.", 403)
        if not self._keys.knows(request.headers):
            return self._answers.said(request, "Sign in first.", 403)
        form = await form_of(request)
        yard = await asyncio.to_thread(self._open_yard)
        place = pages.place_of(yard, form.get("place", [""])[0])
        try:
            verb, noun = Verb(form.get("verb", [""])[0]), Noun(form.get("noun", [""])[0])
        except ValueError:
            return self._answers.said(request, "There is no such action.", 400)
        target = form.get("target", [])
        done = await asyncio.to_thread(act, place, verb, noun, *target)
        _log.info("%s %s %r of %s", verb, noun, target, shown(place))
        self._shared.forget()
        self.live.hurry()
        return self._answers.said(request, done, 200)

    def _span(self, request: Request) -> Span:
        chosen, system = request.query_params.get("range", ""), request.query_params.get("system", "")
        return Span(
            range=chosen if chosen in RANGES else DEFAULT_RANGE,
            system=system if system in set(System) else "",
            now=self._clock.now(),
        )


def _wanted(request: Request) -> Wanted:
    limit = request.query_params.get("limit", "")
    most = int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 6 else pages.USUAL_LIMIT
    return Wanted(
        text=request.query_params.get("q", "").strip()[:_LONGEST_FILTER],
        limit=min(max(1, most), pages.LARGEST_LIMIT),
    )
