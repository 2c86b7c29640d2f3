"""Functions as jobs: the decorator for the common case.

    tasks = Tasks("redis://localhost")

    @tasks.task(retries=3)
    async def send_email(to: str, subject: str) -> None: ...

    await send_email.add(to="a@example.org", subject="Hello")      # in a web server
    panqueue worker my_app:tasks                                   # on a command line

The payload is a JSON object of the arguments; it is checked against the annotations on both sides.
"""

from __future__ import annotations

import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_type_hints,
    overload,
)

import msgspec

from queueyard.panqueue.client import AddedJob, QueueClient
from queueyard.panqueue.errors import BadQueue
from queueyard.panqueue.pool import WorkerPool
from queueyard.panqueue.queues import Queue, QueueSettings
from queueyard.panqueue.sync import SyncAddedJob, SyncQueueClient
from queueyard.panqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from queueyard.panqueue.jobs import Callbacks, Job
    from queueyard.panqueue.settings import WorkerSettings

A = ParamSpec("A")
R = TypeVar("R")


class Task(Generic[A, R]):
    """A function whose calls can be jobs. Called plainly, it is still the function."""

    def __init__(self, tasks: Tasks, function: Callable[A, Any], queue_id: str, settings: QueueSettings) -> None:
        self.function: Callable[..., Any] = function
        self.queue_id = queue_id
        self._tasks = tasks
        self._arguments = _struct_of(function, queue_id)
        result = get_type_hints(function).get("return")
        kept = None if result in {None, type(None)} else result
        self.queue: Queue[Any, Any] = Queue(queue_id, self._arguments, kept, **settings)
        self._is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: A.args, **kwargs: A.kwargs) -> Any:
        return self.function(*args, **kwargs)

    def add(self, *args: A.args, **kwargs: A.kwargs) -> Awaitable[AddedJob[R]]:
        """Add a job with these arguments. TypeError if the function would not take them; else as QueueHandle.add."""
        return self._tasks.client.queue(self.queue).add(self._bound(args, kwargs))

    def add_sync(self, *args: A.args, **kwargs: A.kwargs) -> SyncAddedJob[R]:
        """The same for code without an event loop."""
        return self._tasks.sync_client.queue(self.queue).add(self._bound(args, kwargs))

    def worker(self, **options: Any) -> Worker:
        """A worker that runs these jobs; options as for Worker."""
        return Worker(self.queue, self.handler, **options)

    @property
    def handler(self) -> Callable[[Job[Any]], Any]:
        """What a worker calls with a job."""
        return self._handle_async if self._is_async else self._handle

    async def _handle_async(self, job: Job[Any]) -> Any:
        return await self.function(**msgspec.structs.asdict(job.payload))

    def _handle(self, job: Job[Any]) -> Any:
        return self.function(**msgspec.structs.asdict(job.payload))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        return msgspec.convert(bound.arguments, self._arguments, from_attributes=True)


class TaskMaker(Protocol):
    """The decorator: what an async function returns is what it awaits to."""

    @overload
    def __call__(self, function: Callable[A, Coroutine[Any, Any, R]], /) -> Task[A, R]: ...
    @overload
    def __call__(self, function: Callable[A, R], /) -> Task[A, R]: ...


class Tasks:
    """The tasks of an application, and its way to the server."""

    def __init__(self, url: str | None = None, *, name: str = "client") -> None:
        """Without `url`: REDIS_URL, else this machine."""
        self.url = url
        self._name = name
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._client: QueueClient | None = None
        self._sync_client: SyncQueueClient | None = None

    @property
    def client(self) -> QueueClient:
        """The async client that `Task.add` uses."""
        if self._client is None:
            self._client = QueueClient(self.url, name=self._name)
        return self._client

    @property
    def sync_client(self) -> SyncQueueClient:
        """The client that `Task.add_sync` uses."""
        if self._sync_client is None:
            self._sync_client = SyncQueueClient(self.url, name=self._name)
        return self._sync_client

    def task(self, queue_id: str | None = None, **settings: Unpack[QueueSettings]) -> TaskMaker:
        """Make a task of a function; settings as for Queue. Without an id the queue is called like the function."""

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            name = queue_id or function.__name__.replace("_", "-")
            if name in self.tasks:
                raise BadQueue(f"there is already a task for queue {name}", hint="Give one of them another queue id.")
            made: Task[..., Any] = Task(self, function, name, settings)
            self.tasks[name] = made
            return made

        return cast("TaskMaker", decorate)

    def pool(
        self,
        *,
        url: str | None = None,
        concurrency: int | None = None,
        settings: WorkerSettings | None = None,
        callbacks: Callbacks | None = None,
    ) -> WorkerPool:
        """One worker per task. BadQueue if there are none."""
        return WorkerPool(
            [
                task.worker(url=url or self.url, concurrency=concurrency, settings=settings, callbacks=callbacks)
                for task in self.tasks.values()
            ]
        )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._sync_client is not None:
            self._sync_client.close()
            self._sync_client = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _struct_of(function: Callable[..., Any], queue_id: str) -> type[msgspec.Struct]:
    """A struct with the function's parameters as fields."""
    hints = get_type_hints(function)
    fields: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise BadQueue(
                f"task {queue_id}: parameter {name} cannot be a field of a JSON object", hint="Name them all."
            )
        kind = hints.get(name, Any)
        fields.append((name, kind) if parameter.default is parameter.empty else (name, kind, _default(parameter)))
    return msgspec.defstruct("Arguments", fields, kw_only=True)


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if isinstance(value, list | dict | set):
        return msgspec.field(default_factory=value.copy)
    return value
