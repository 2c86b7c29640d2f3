"""How an answer is written: pages from templates, tables as CSV, refusals; and how a form is read.

A page that is asked for by a script of ours (`HX-Request`) is answered with its changing part only.
"""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from queueyard import __version__
from queueyard.dashboard import svg, texts
from queueyard.dashboard.errors import NotFound
from queueyard.dashboard.panels import PANELS
from queueyard.kernel.errors import QueueyardError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request

    from queueyard.dashboard.guard import Keys

_TEMPLATES = Path(__file__).parent / "templates"
_LARGEST_FORM_BYTES = 16 * 1024


class Answers:
    """Writes the answers of one dashboard."""

    def __init__(self, keys: Keys, *, allow_actions: bool) -> None:
        self._keys = keys
        self._allow_actions = allow_actions
        self._templates = _environment()

    def page(self, request: Request, name: str, *, status: int = 200, **context: Any) -> HTMLResponse:
        is_part = "hx-request" in request.headers
        template = self._templates.get_template(f"parts/{name}.html" if is_part else f"{name}.html")
        text = template.render(
            request=request,
            systems=list(PANELS),
            allow_actions=self._allow_actions,
            has_token=self._keys.token is not None,
            is_known=self._keys.knows(request.headers),
            version=__version__,
            query=urlencode(request.query_params.multi_items()),
            **context,
        )
        return HTMLResponse(text, status, headers={"vary": "HX-Request"})

    def said(self, request: Request, text: str, status: int) -> Response:
        """The outcome of an action, or a refusal; after an action, whoever looks at the page looks again."""
        is_done = status == 200
        answer = self.page(
            request, "said", said=text, is_done=is_done, status=status, title="Done" if is_done else "No"
        )
        if is_done:
            answer.headers["hx-trigger"] = "tick"
        return answer

    async def refused(self, request: Request, fault: Exception) -> Response:
        hint = fault.hint if isinstance(fault, QueueyardError) else None
        return self.said(request, f"{fault} {hint or ''}".strip(), 404 if isinstance(fault, NotFound) else 409)

    async def failed(self, request: Request, _: Exception) -> Response:
        """A bug; the server logs it."""
        return self.said(request, "Something went wrong; where the dashboard was started it is said what.", 500)

    async def no_page(self, request: Request, fault: Exception) -> Response:
        status = fault.status_code if isinstance(fault, HTTPException) else 404
        return self.said(request, "There is no such page.", status)


def table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> Response:
    """A table as a file for spreadsheets."""
    buffer = StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    writer.writerows([texts.cell_of_csv(value) for value in row] for row in rows)
    return Response(buffer.getvalue(), media_type="text/csv", headers={"content-disposition": "attachment"})


async def form_of(request: Request) -> dict[str, list[str]]:
    """The fields of a form. HTTPException 413 for one that no page of ours would send."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_FORM_BYTES:
            raise HTTPException(413)
    return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "number": texts.number,
        "seconds": texts.seconds,
        "share": texts.share,
        "bytes": texts.size,
        "plain": texts.plain,
    }
    found.globals["spark"] = svg.spark
    return found
