"""A whole queue with workers in one thread on a clock that jumps: the real worker code, a model for the server.

The event loop's time moves only when nothing is left to do, then at once to the next timer. Every delay, every fault
and every choice comes from one seeded generator, so a seed is a schedule and can be run again. What is replaced is the
medium alone: calls take time, get lost on the way there or back, connections end, the server is away for a while,
workers die, and renewal comes late.
"""

from __future__ import annotations

import asyncio
from collections import Counter
import random
import selectors
from typing import TYPE_CHECKING, Any

from queueyard.kernel.testing import ClaimHistory
from queueyard.panqueue import BackoffRule, Callbacks, Job, Keep, Limit, Mode, Queue, Worker, WorkerSettings
from queueyard.panqueue.errors import ServerUnreachable
from queueyard.panqueue.records import JobOptions
from queueyard.panqueue.rules import is_ready
from queueyard.panqueue.store import QueueStore
from unit.panqueue.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.panqueue.jobs import WorkerError
    from queueyard.panqueue.renewal import Renewal
    from queueyard.panqueue.store import Ask

_START_MS = 1_700_000_000_000


class _NoSelector(selectors.BaseSelector):
    """Nothing ever becomes readable; waiting moves the clock."""

    def __init__(self) -> None:
        self.loop: SimulatedLoop | None = None
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for ever")
        if self.loop is not None and timeout > 0:
            self.loop.now += timeout
        return []

    def get_map(self) -> Any:
        return {key.fd: key for key in self._keys.values()}

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is its own."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _NoSelector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now


class World:
    """The server, the network, and everything that may happen to them."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.model = Model(lambda: _START_MS + int(loop.now * 1_000))
        self.model.published = self._publish
        self.is_away = False
        self.loss = chance.choice([0.0, 0.0, 0.02, 0.1])
        self.listeners: list[tuple[bytes, Callable[[bytes], None]]] = []

    def delay(self) -> float:
        return self.chance.choice([0.0001, 0.001, 0.005, 0.05]) * self.chance.random()

    def _publish(self, channel: bytes, message: bytes) -> None:
        for wanted, listener in self.listeners:
            if wanted == channel and self.chance.random() >= self.loss:
                self.loop.call_later(self.delay(), listener, message)


class SimulatedAsker:
    """A connection: one call at a time, each with its own fate."""

    def __init__(self, medium: SimulatedMedium) -> None:
        self._medium = medium

    async def ask(self, ask: Ask[Any]) -> Any:
        world = self._medium.world
        await asyncio.sleep(world.delay())
        await self._medium.die_if_dead()
        if world.is_away or world.chance.random() < world.loss:
            raise ServerUnreachable("lost on the way there")
        if ask.script is None:
            if ask.arguments[0] == "EXISTS":
                return ask.parse(0)
            if ask.arguments[0] == "HMGET":
                return ask.parse([None] * (len(ask.arguments) - 2))
            return ask.parse(b"maxmemory_policy:noeviction\r\n")
        reply = world.model.run(ask.script, ask.keys, ask.arguments)
        await asyncio.sleep(world.delay())
        await self._medium.die_if_dead()
        if world.chance.random() < world.loss:
            raise ServerUnreachable("lost on the way back")
        return ask.parse(reply)

    def close(self) -> None: ...


class SimulatedSubscription:
    def __init__(self, medium: SimulatedMedium, entry: tuple[bytes, Callable[[bytes], None]]) -> None:
        self._medium = medium
        self._entry = entry

    async def ended(self) -> None:
        """Now and then a connection ends by itself."""
        await asyncio.sleep(self._medium.world.chance.uniform(0.5, 20))

    def close(self) -> None:
        if self._entry in self._medium.world.listeners:
            self._medium.world.listeners.remove(self._entry)


class SimulatedMedium:
    """What one worker sees of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_dead = False

    async def die_if_dead(self) -> None:
        if self.is_dead:
            await asyncio.get_running_loop().create_future()

    def asker(self) -> SimulatedAsker:
        return SimulatedAsker(self)

    async def subscribe(self, channels: Sequence[str], on_message: Callable[[bytes], None]) -> SimulatedSubscription:
        await asyncio.sleep(self.world.delay())
        await self.die_if_dead()
        if self.world.is_away:
            raise ServerUnreachable("away")
        entry = (channels[0].encode(), on_message)
        self.world.listeners.append(entry)
        return SimulatedSubscription(self, entry)

    def start_renewal(self, renewal: Renewal, *, every_s: float) -> _Ticker:
        return _Ticker(self, renewal, every_s)


class _Ticker:
    """The renewal thread, as a timer: sometimes late, sometimes without an answer."""

    def __init__(self, medium: SimulatedMedium, renewal: Renewal, every_s: float) -> None:
        self._medium = medium
        self._renewal = renewal
        self._every_s = every_s
        self._stopped = False
        self._next()

    def stop(self) -> None:
        self._stopped = True

    def _next(self) -> None:
        late = 6.0 if self._medium.world.chance.random() < 0.03 else 1.0
        self._medium.world.loop.call_later(self._every_s * late, self._tick)

    def _tick(self) -> None:
        if self._stopped or self._medium.is_dead:
            return
        self._renewal.round(self._ask)
        self._next()

    def _ask(self, ask: Ask[Any]) -> Any:
        world = self._medium.world
        if world.is_away or world.chance.random() < world.loss:
            raise ServerUnreachable("lost")
        assert ask.script is not None
        return ask.parse(world.model.run(ask.script, ask.keys, ask.arguments))


class Simulation:
    """One seed: some workers, some jobs, some accidents; then everything must have ended well."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.loop = SimulatedLoop()
        self.world = World(self.loop, self.chance)
        self.history = ClaimHistory()
        self.world.model.watch = self._watch
        self.mode = self.chance.choice([Mode.GLOBAL, Mode.GLOBAL, Mode.KEYED])
        self.per_key = self.chance.randint(1, 2)
        self.limit = self.chance.choice([None, None, 2, 4])
        self.queue: Queue[Any, Any] = Queue(
            "sim",
            mode=self.mode,
            key_concurrency=self.per_key if self.mode is Mode.KEYED else None,
            keep_completed=self.chance.choice([None, Keep(count=5)]),
            backoff=BackoffRule(base_ms=self.chance.choice([0, 50]), cap_ms=200),
        )
        self.store = QueueStore("sim")
        self.problems: list[str] = []
        self.running: Counter[int] = Counter()
        self.workers: list[tuple[Worker, SimulatedMedium]] = []
        self.jobs = self.chance.randint(3, 25)
        self.finished: set[str] = set()
        self.all_finished: asyncio.Future[None] | None = None

    def run(self) -> list[str]:
        """Every broken promise; none, if all is well."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._play())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            asyncio.set_event_loop(None)
            self.loop.close()
        return self.problems + self.history.violations()

    # --- the play ----------------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        self.all_finished = self.loop.create_future()
        for _ in range(self.chance.randint(1, 3)):
            await self._hire()
        adding = asyncio.ensure_future(self._add())
        accidents = asyncio.ensure_future(self._accidents())
        await adding
        done, _ = await asyncio.wait([self.all_finished], timeout=600)
        if not done:
            self.problems.append(f"not finished after ten minutes: {self._left()}")
        accidents.cancel()
        await self._go_home()
        self._check_the_end()

    async def _hire(self) -> None:
        medium = SimulatedMedium(self.world)
        number = len(self.workers)
        concurrency = self.chance.randint(1, 5)

        async def handler(job: Job[Any]) -> None:
            self.running[number] += 1
            if self.running[number] > concurrency:
                self.problems.append(f"worker {number} runs {self.running[number]} handlers, not {concurrency}")
            try:
                await asyncio.sleep(self.chance.choice([0, 0.001, 0.05, 1.5]))
                if self.chance.random() < 0.15:
                    raise ValueError("no luck")
            finally:
                self.running[number] -= 1

        settings = WorkerSettings(
            concurrency=concurrency, lease_ms=600, sweep_ms=400, poll_ms=1_000, cancel_grace_ms=50, sweep_batch=3
        )
        while True:
            worker = Worker(
                self.queue,
                handler,
                medium=medium,
                settings=settings,
                limit=None if self.limit is None else Limit(self.limit),
                callbacks=Callbacks(on_worker_error=self._note),
                name=f"w{number}",
                random=self.chance.random,
            )
            try:
                await worker.start()
            except ServerUnreachable:
                continue
            self.workers.append((worker, medium))
            return

    def _note(self, trouble: WorkerError) -> None:
        # Lost calls are part of the play; a fault in our own code is not.
        if not isinstance(trouble.error, ServerUnreachable):
            self.problems.append(f"{trouble.kind}: {trouble.error!r}")

    async def _add(self) -> None:
        for number in range(self.jobs):
            job_id = f"j{number}"
            words: list[Any] = [job_id, b"{}"]
            if self.mode is Mode.KEYED:
                words.append(f"k{number % 3}")
            options = JobOptions(retries=self.chance.randint(0, 3), max_stalls=100)
            ask = self.store.add(words, options, keyed=self.mode is Mode.KEYED)
            self.history.accepted(job_id)
            assert ask.script is not None
            self.world.model.run(ask.script, ask.keys, ask.arguments)
            await asyncio.sleep(self.chance.choice([0, 0, 0.01, 0.3]))

    async def _accidents(self) -> None:
        for _ in range(self.chance.randint(0, 4)):
            await asyncio.sleep(self.chance.random() * 3)
            accident = self.chance.choice([self._kill, self._outage, self._stop_one])
            await accident()

    async def _kill(self) -> None:
        """A worker dies without a word, and another one is hired."""
        worker, medium = self.chance.choice(self.workers)
        medium.is_dead = True
        turns = worker._turns
        if turns is not None:
            for job in [*turns.held.values(), *turns.ghosts]:
                if job.task is not None and not job.has_ended:
                    job.task.cancel()
            for task in worker._tasks:
                task.cancel()
        await self._hire()

    async def _outage(self) -> None:
        self.world.is_away = True
        await asyncio.sleep(self.chance.choice([0.05, 0.5, 2.0]))
        self.world.is_away = False

    async def _stop_one(self) -> None:
        worker, medium = self.chance.choice(self.workers)
        if not medium.is_dead:
            await worker.stop(drain=self.chance.random() < 0.5, timeout_ms=300)
            await self._hire()

    async def _go_home(self) -> None:
        self.world.is_away = False
        self.world.loss = 0.0
        for worker, medium in self.workers:
            if not medium.is_dead:
                await worker.stop(timeout_ms=5_000)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _watch(self, what: str, job_id: str, token: str) -> None:
        getattr(self.history, what)(job_id, token)
        if what == "finished":
            self.finished.add(job_id)
            if len(self.finished) == self.jobs and self.all_finished is not None and not self.all_finished.done():
                self.all_finished.set_result(None)
        self.loop.call_soon(self._check_limits)

    def _key(self, name: str) -> bytes:
        return self.store.keys[name].encode()

    def _check_limits(self) -> None:
        model = self.world.model
        active = model.zset(self._key("active"))
        if self.limit is not None and len(active) > self.limit:
            self.problems.append(f"{len(active)} jobs are active, and the limit is {self.limit}")
        if self.mode is not Mode.KEYED:
            return
        counts: Counter[bytes] = Counter()
        for job_id in active:
            counts[model.fields(self.store.keys.job(job_id.decode()).encode())[b"concurrencyKey"]] += 1
        stored = {key: int(value) for key, value in model.fields(self._key("k_active")).items()}
        if stored != dict(counts):
            self.problems.append(f"counted {stored}, active are {dict(counts)}")
        if any(count > self.per_key for count in counts.values()):
            self.problems.append(f"a key runs more than {self.per_key}: {counts}")
        for number in range(3):
            self._check_readiness(f"k{number}".encode(), counts)

    def _check_readiness(self, key: bytes, counts: Counter[bytes]) -> None:
        """spec: Readiness Invariant."""
        model = self.world.model
        waits = len(model.line(self._key("k_lists") + key))
        stands_ready = key in model.zset(self._key("k_ready"))
        if stands_ready != is_ready(waiting=waits, active=counts[key], limit=self.per_key):
            self.problems.append(f"{key!r}: ready {stands_ready}, waiting {waits}, active {counts[key]}")

    def _check_the_end(self) -> None:
        model = self.world.model
        for name in ("waiting", "active", "delayed", "k_ready", "k_active"):
            if model.data.get(self._key(name)):
                self.problems.append(f"{name} is not empty: {model.data[self._key(name)]}")
        if self.running.total():
            self.problems.append(f"handlers still run: {self.running}")

    def _left(self) -> list[str]:
        return sorted({f"j{number}" for number in range(self.jobs)} - self.finished)
