"""Looking on: spans, scrapes, the live view; on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
import pytest

from queueyard.panqueue import BackoffRule, Callbacks, Job, Queue, QueueClient, SyncQueueClient, Worker
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.exporter import Exporter, serve
from queueyard.panqueue.tracing import traced
from scripts import run_script
from servers import Server, eventually, fresh_id, in_loop, server, valkey

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server", "valkey"]


@pytest.fixture(scope="module")
def exporter_of_spans() -> InMemorySpanExporter:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    return spans


class TestSpans:
    @in_loop
    async def test_one_trace_goes_from_the_adder_through_every_attempt_into_the_handler(
        self, server: Server, exporter_of_spans: InMemorySpanExporter
    ) -> None:
        exporter_of_spans.clear()
        queue: Queue[Any, Any] = Queue(fresh_id(), retries=1, backoff=BackoffRule(base_ms=0, cap_ms=0))
        completed: list[Any] = []

        async def handler(job: Job[Any]) -> None:
            with trace.get_tracer("app").start_as_current_span("work"):
                if job.attempt == 1:
                    raise ValueError("once")

        callbacks = traced(Callbacks(on_completed=completed.append))
        async with (
            QueueClient(server.url, trace=True) as client,
            Worker(queue, handler, url=server.url, callbacks=callbacks),
        ):
            with trace.get_tracer("app").start_as_current_span("request"):
                await client.queue(queue).add(1)
            await eventually(lambda: len(completed) == 1)
        spans = {(one.name.split()[0], one.status.status_code): one for one in exporter_of_spans.get_finished_spans()}
        sent = spans["send", StatusCode.UNSET]
        failed, succeeded = spans["process", StatusCode.ERROR], spans["process", StatusCode.UNSET]

        assert len({one.context.trace_id for one in spans.values() if one.context}) == 1
        assert (sent.kind, failed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert failed.parent is not None
        assert sent.context is not None
        assert failed.parent.span_id == sent.context.span_id
        assert succeeded.attributes is not None
        assert succeeded.attributes["panqueue.attempt"] == 2
        work = spans["work", StatusCode.UNSET]
        assert work.parent is not None
        assert succeeded.context is not None
        assert work.parent.span_id == succeeded.context.span_id

    def test_the_blocking_client_traces_too(self, server: Server, exporter_of_spans: InMemorySpanExporter) -> None:
        exporter_of_spans.clear()
        with SyncQueueClient(server.url, trace=True) as client:
            record = client.queue(fresh_id()).add(1).record()

        [span] = exporter_of_spans.get_finished_spans()
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" in (record.opts or "")

    def test_without_tracing_a_job_carries_nothing(self, server: Server) -> None:
        with SyncQueueClient(server.url) as client:
            assert client.queue(fresh_id()).add(1).record().opts is None


class TestScrapes:
    @in_loop
    async def test_a_scrape_tells_counts_and_growing_histograms(self, server: Server) -> None:
        queue_id = fresh_id()

        async def handler(_job: Job[Any]) -> None: ...

        line = Line(parse_address(server.url))
        async with QueueClient(server.url) as client:
            handle = client.queue(queue_id)
            await handle.switch_events()
            counts = [await handle.counts()]
            exporter = Exporter(lambda: counts, lambda _tag: line)
            http = serve(exporter, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{http.server_port}"
            try:
                await handle.add_many(range(3))
                before = await asyncio.to_thread(_get, f"{url}/metrics")
                async with Worker(queue_id, handler, url=server.url):

                    async def is_idle() -> bool:
                        return (await handle.counts()).events == 9

                    await eventually(is_idle)
                after = await asyncio.to_thread(_get, f"{url}/metrics")
                with pytest.raises(HTTPError, match="404"):
                    await asyncio.to_thread(_get, f"{url}/else")
            finally:
                http.shutdown()
                http.server_close()
        line.close()

        assert f'panqueue_run_seconds_count{{queue="{queue_id}"}} 0' in before
        assert f'panqueue_run_seconds_count{{queue="{queue_id}"}} 3' in after
        assert f'panqueue_wait_seconds_count{{queue="{queue_id}"}} 3' in after

    def test_the_command_prints_histograms_of_queues_with_events(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()
        with SyncQueueClient(server.url) as client:
            client.queue(queue).switch_events()
            client.queue(queue).add(1)

        answer = run_script("panqueue", "metrics", queue, cwd=tmp_path, REDIS_URL=server.url)
        wrong = run_script("panqueue", "metrics", "--serve", "9464", cwd=tmp_path, REDIS_URL=server.url)

        assert f'panqueue_jobs{{queue="{queue}",state="waiting"}} 1' in answer.stdout
        assert f'panqueue_wait_seconds_count{{queue="{queue}"}} 0' in answer.stdout
        assert (wrong.code != 0, "HOST:PORT" in wrong.stderr) == (True, True)


def _get(url: str) -> str:
    with urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


class TestTop:
    @in_loop
    async def test_it_shows_what_runs_and_how_far_it_is(self, server: Server, tmp_path: Path) -> None:
        queue_id = fresh_id()
        release = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            job.progress(0.25)
            await release.wait()

        async with QueueClient(server.url) as client, Worker(queue_id, handler, url=server.url):
            job = await client.queue(queue_id).add(1)

            async def is_told() -> bool:
                return (await job.record()).progress is not None

            await eventually(is_told)
            words = ("panqueue", "top", queue_id)
            shown = await asyncio.to_thread(run_script, *words, cwd=tmp_path, REDIS_URL=server.url)
            told = await asyncio.to_thread(run_script, *words, "--json", cwd=tmp_path, REDIS_URL=server.url)
            release.set()

        assert "[#####...............] 25%" in shown.stdout
        assert [one["id"] for one in told.json["active"]] == [job.id]
        assert [one["queue"] for one in told.json["queues"]] == [queue_id]
