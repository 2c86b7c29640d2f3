"""OpenTelemetry spans across adding and running a job; needs the extra `otel`.

    client = QueueClient(url, trace=True)                       # a PRODUCER span per add
    worker = Worker(queue, handler, callbacks=traced())         # a CONSUMER span per attempt, below that of the add

The context travels in the field `opts` of the job, as W3C trace context. Which spans are kept, and where they go, is
the business of the program's own tracer provider.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from queueyard.panqueue.errors import PanqueueError
from queueyard.panqueue.jobs import Callbacks
from queueyard.panqueue.store import read_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span, Tracer

    from queueyard.panqueue.jobs import Held, Job, JobCompleted, JobErrored, JobLost, JobStarted

_NAME = "queueyard.panqueue"
_SYSTEM = {"messaging.system": "panqueue"}


def _telemetry() -> Any:
    try:
        from opentelemetry import trace  # noqa: PLC0415  an extra
    except ImportError as fault:
        raise PanqueueError("tracing needs OpenTelemetry", hint="Type: pip install 'queueyard[otel]'") from fault
    return trace


def trace_of_add(queue_id: str) -> str:
    """A short PRODUCER span for one add; gives the trace context to send along. PanqueueError without the extra."""
    tracer: Tracer = _telemetry().get_tracer(_NAME)
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carrier: dict[str, str] = {}
    about = _SYSTEM | {"messaging.destination.name": queue_id, "messaging.operation.type": "send"}
    kind = _telemetry().SpanKind.PRODUCER
    with tracer.start_as_current_span(f"send {queue_id}", kind=kind, attributes=about):
        TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def traced(callbacks: Callbacks | None = None) -> Callbacks:
    """The same callbacks, and a CONSUMER span around every attempt. PanqueueError without the extra."""
    tracer: Tracer = _telemetry().get_tracer(_NAME)
    inner = callbacks or Callbacks()
    open_spans: dict[Job[Any], Span] = {}

    def started(told: JobStarted) -> None:
        open_spans[told.job] = _start(tracer, told.job)  # type: ignore[arg-type]
        _then(inner.on_started, told)

    def completed(told: JobCompleted) -> None:
        _end(open_spans.pop(told.job, None))
        _then(inner.on_completed, told)

    def errored(told: JobErrored) -> None:
        _end(open_spans.pop(told.job, None), told.error)
        _then(inner.on_error, told)

    def lost(told: JobLost) -> None:
        _end(open_spans.pop(told.job, None), PanqueueError(f"lost: {told.phase}"))
        _then(inner.on_lost, told)

    return replace(inner, on_started=started, on_completed=completed, on_error=errored, on_lost=lost)


def _start(tracer: Tracer, job: Held[Any]) -> Span:
    from opentelemetry import context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    trace = _telemetry()
    carrier = {"traceparent": read_options(job.opts).trace or ""}
    above = TraceContextTextMapPropagator().extract(carrier)
    about: dict[str, str | int] = {
        **_SYSTEM,
        "messaging.destination.name": job.queue_id,
        "messaging.operation.type": "process",
        "messaging.message.id": job.id,
        "panqueue.attempt": job.attempt,
    }
    span: Span = tracer.start_span(
        f"process {job.queue_id}", context=above, kind=trace.SpanKind.CONSUMER, attributes=about
    )
    # This is called in the task that runs the handler: what the handler traces stands below this span.
    context.attach(trace.set_span_in_context(span))
    return span


def _end(span: Span | None, error: BaseException | None = None) -> None:
    if span is None:
        return
    if error is not None:
        span.record_exception(error)
        span.set_status(_telemetry().StatusCode.ERROR, str(error))
    span.end()


def _then(callback: Callable[[Any], object] | None, told: Any) -> None:
    if callback is not None:
        callback(told)
