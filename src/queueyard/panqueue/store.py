"""What is asked of Redis and what its answers mean: the only file that knows keys, arguments and replies together.

A `Ask` is one call of one script on one queue; `parse` makes a value of its reply. Who carries it to the server is
somebody else's business (`link.py` with an event loop, `blocking.py` without), so that both sides and the simulation
share every word. The two hot calls, `add` and `turn`, are built here as plainly as possible.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from queueyard.panqueue import scripts
from queueyard.panqueue.errors import (
    Duplicate,
    JobExists,
    LimitConflict,
    ModeMismatch,
)
from queueyard.panqueue.pacing import FIELDS, QueueRules, rules_from
from queueyard.panqueue.records import (
    Added,
    Agreed,
    Counts,
    Declared,
    Finish,
    IdsFrom,
    JobOptions,
    JobRecord,
    JobState,
    Keep,
    Mode,
    Obliterated,
    StoredOptions,
    record_from,
)
from queueyard.panqueue.rules import check_queue_id, retention_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from queueyard.panqueue.placing import Placing
    from queueyard.panqueue.scripts import Script
    from queueyard.panqueue.wire import Reply, Word

_T = TypeVar("_T")

#: what one call of a script may carry: more would keep the server from everybody else for too long
MOST_JOBS_PER_CALL = 1_000
MOST_BYTES_PER_CALL = 4_000_000


class Ask(Generic[_T]):
    """One call of one script, or one plain command where there is no script, and how to read the reply."""

    __slots__ = ("arguments", "keys", "parse", "script")

    def __init__(
        self, script: Script | None, keys: Sequence[str], arguments: Sequence[Word], parse: Callable[[Reply], _T]
    ) -> None:
        self.script = script
        self.keys = keys
        self.arguments = arguments
        self.parse = parse


#: a conversation: yields what is to be asked, is sent the answers, and returns what came of it
Talk = Generator[Ask[Any], Any, _T]


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A job as a claim brings it; counters as they were before."""

    id: str
    payload: bytes
    runs: int
    failures: int
    opts: bytes | None
    key: str | None


class Turn(msgspec.Struct, frozen=True):
    """What one turn of a worker brought."""

    #: position (from 0) and code of each finish that does not count
    refused: list[tuple[int, Finish]]
    claimed: list[Claimed]
    #: ids whose hash is gone
    corrupt: list[str]
    #: milliseconds until the next delayed job; None where it does not matter
    due_ms: int | None


class Recovered(msgspec.Struct, frozen=True):
    """One job that a sweep took back."""

    outcome: Finish
    job: JobRecord


class QueueKeys:
    """The keys of one queue, all under one hash tag, so that they share a slot of a cluster."""

    def __init__(self, queue_id: str) -> None:
        self.queue_id = check_queue_id(queue_id)
        self.tag = f"{{q:{queue_id}}}"
        self._names = {name: self.tag + suffix for name, suffix in scripts.SUFFIXES.items()}
        self._for_script: dict[str, list[str]] = {}

    def __getitem__(self, name: str) -> str:
        return self._names[name]

    def job(self, job_id: str) -> str:
        return self._names["jobs"] + job_id

    def of(self, script: Script, **others: str) -> list[str]:
        """The keys of a script in their order; `others` gives those that are not the same for every call."""
        if others:
            return [others.get(name) or self._names[name] for name in script.keys]
        known = self._for_script.get(script.name)
        if known is None:
            known = self._for_script[script.name] = [self._names[name] for name in script.keys]
        return known


class QueueStore:
    """Every call about one queue."""

    def __init__(self, queue_id: str) -> None:
        self.keys = QueueKeys(queue_id)
        self.queue_id = queue_id
        self._prefix = self.keys["jobs"]

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(
        self,
        jobs: Sequence[Word],
        options: JobOptions,
        *,
        keyed: bool,
        ids_from: IdsFrom = IdsFrom.CLIENT,
        actor: str = "",
    ) -> Ask[int]:
        """Add jobs; `jobs` is id, payload (and key, if keyed) of each. Gives the first id if the server makes them.

        ModeMismatch, or JobExists if an id of a person is taken; nothing is added then.
        """
        script = scripts.ADD_KEYED if keyed else scripts.ADD
        if options.placing is not None:
            script = scripts.ADD_PLACED
            jobs = jobs if keyed else _with_no_key(jobs)
        head: list[Word] = [
            self._prefix,
            self.queue_id,
            options.retries,
            options.max_stalls,
            stored_options(options),
            int(ids_from),
        ]
        placed = () if options.placing is None else _placing_words(options.placing, keyed=keyed)
        return Ask(
            script,
            self.keys.of(script),
            [*head, actor, *placed, *jobs],
            lambda reply: self._read_added(reply, jobs, 2 if script is scripts.ADD else 3, keyed=keyed),
        )

    def _read_added(self, reply: Reply, jobs: Sequence[Word], stride: int, *, keyed: bool) -> int:
        code = Added(reply[0])
        if code is Added.DUPLICATE:
            raise Duplicate(reply[1].decode("utf-8", "surrogateescape"))
        if code is Added.OTHER_MODE:
            mode = reply[1].decode() or str(Mode.GLOBAL)
            wanted = "keyed" if keyed else "global"
            raise ModeMismatch(
                f"queue {self.queue_id} is in {mode} mode, and the job was to be added in {wanted} mode",
                hint="Give jobs of a keyed queue a key; start its worker before its first client.",
            )
        if code is Added.IDS_TAKEN:
            taken = ", ".join(str(jobs[(place - 1) * stride]) for place in reply[1])
            raise JobExists(f"queue {self.queue_id} already has {taken}", hint="Choose another id, or leave it out.")
        first: int = reply[1]
        return first

    # --- a worker ----------------------------------------------------------------------------------------------------

    def turn_builder(
        self, *, lease_ms: int, worker: str, keep: Keep | None, keyed: bool = False, ruled: bool = False
    ) -> TurnBuilder:
        """Builds the hot call of one worker; what never changes is put together once.

        `ruled`: the queue has priorities or a rate limit, which costs a longer script.
        """
        return TurnBuilder(self.keys, lease_ms=lease_ms, worker=worker, keep=keep, keyed=keyed, ruled=ruled)

    def postpone(self, jobs: Iterable[tuple[str, str, str, int, int]], *, worker: str) -> Ask[list[Finish]]:
        """Put jobs off, given as (id, token, why, ms to wait, 1 if everybody has to wait), without spending a retry."""
        words: list[Word] = [self._prefix, worker]
        for job in jobs:
            words += job
        return Ask(scripts.POSTPONE, self.keys.of(scripts.POSTPONE), words, _codes)

    def rules(self) -> Ask[QueueRules]:
        return Ask(None, [], ["HMGET", self.keys["meta"], *FIELDS], rules_from)

    def write_rules(self, rules: QueueRules) -> Ask[int]:
        """Write down those rules that are set; others stay."""
        words = [word for pair in rules.fields().items() for word in pair]
        return Ask(None, [], ["HSET", self.keys["meta"], *words], int)

    def fail(self, jobs: Iterable[tuple[str, str, str, int]], *, worker: str, keep: Keep | None) -> Ask[list[Finish]]:
        """Record failures, given as (id, token, why, ms until the next attempt or -1)."""
        words: list[Word] = [self._prefix, worker, *retention_arguments(keep)]
        for job in jobs:
            words += job
        return Ask(scripts.FAIL, self.keys.of(scripts.FAIL), words, _codes)

    def extend(self, held: Iterable[tuple[str, str]], *, lease_ms: int) -> Ask[list[Finish]]:
        """Renew leases, given as (id, token)."""
        words: list[Word] = [self._prefix, lease_ms]
        for pair in held:
            words += pair
        return Ask(scripts.EXTEND, self.keys.of(scripts.EXTEND), words, _codes)

    def hand_back(self, held: Iterable[tuple[str, str]], *, worker: str, why: str) -> Ask[list[Finish]]:
        """Give unfinished jobs back, given as (id, token), without spending a retry."""
        words: list[Word] = [self._prefix, worker, why]
        for pair in held:
            words += pair
        return Ask(scripts.HAND_BACK, self.keys.of(scripts.HAND_BACK), words, _codes)

    def recover(self, *, actor: str, most: int, keep: Keep | None) -> Ask[list[Recovered]]:
        """Take back at most `most` jobs whose lease ran out."""
        words: list[Word] = [self._prefix, actor, most, *retention_arguments(keep)]
        return Ask(scripts.RECOVER, self.keys.of(scripts.RECOVER), words, _read_recovered)

    def declare_limit(self, limit: int, version: int) -> Ask[int]:
        """Say how many jobs may be active over all workers; gives the limit in force. LimitConflict."""
        return Ask(scripts.DECLARE_LIMIT, self.keys.of(scripts.DECLARE_LIMIT), [limit, version], self._read_limit)

    def _read_limit(self, reply: Reply) -> int:
        stored: int = reply[1]
        if Declared(reply[0]) is Declared.CONFLICT:
            raise LimitConflict(
                f"queue {self.queue_id}: its common limit is {stored} under the same version",
                hint="Raise the version of the limit wherever it is declared.",
            )
        return stored

    def declare_mode(self, mode: Mode, key_concurrency: int | None) -> Ask[int | None]:
        """Check the mode and, for a new keyed queue, write it down; gives the limit per key. ModeMismatch."""
        words: list[Word] = [str(mode), "" if key_concurrency is None else key_concurrency]
        return Ask(
            scripts.DECLARE_MODE, self.keys.of(scripts.DECLARE_MODE), words, lambda reply: self._read_mode(reply, mode)
        )

    def _read_mode(self, reply: Reply, wanted: Mode) -> int | None:
        code, mode, limit = Agreed(reply[0]), reply[1].decode(), _number(reply[2])
        if code is Agreed.OTHER_MODE:
            raise ModeMismatch(
                f"queue {self.queue_id} is in {mode} mode, not in {wanted} mode",
                hint="Use the mode that is stored, another queue id, or empty it: panqueue obliterate " + self.queue_id,
            )
        if code is Agreed.OTHER_LIMIT:
            raise ModeMismatch(
                f"queue {self.queue_id} lets {limit} jobs per key run at once, not what was asked for",
                hint=f"Use {limit} everywhere, or leave it out to take what is stored.",
            )
        return limit

    # --- keeping house -----------------------------------------------------------------------------------------------

    def key_limit(self, key: str, limit: int | None) -> Ask[None]:
        """Give one key a limit of its own, or take it away with None. ModeMismatch unless the mode is dynamic."""
        words: list[Word] = [key, "" if limit is None else limit]
        return Ask(scripts.KEY_LIMIT, self.keys.of(scripts.KEY_LIMIT), words, self._read_key_limit)

    def _read_key_limit(self, reply: Reply) -> None:
        if reply:
            raise ModeMismatch(
                f"queue {self.queue_id} is not in dynamic mode, so its keys have one limit in common",
                hint="Start its worker with mode='dynamic'.",
            )

    def pause(self, *, paused: bool, actor: str) -> Ask[bool]:
        return Ask(scripts.PAUSE, self.keys.of(scripts.PAUSE), [int(paused), actor], bool)

    def switch_events(self, longest: int) -> Ask[bool]:
        return Ask(scripts.SWITCH_EVENTS, self.keys.of(scripts.SWITCH_EVENTS), [longest], bool)

    def counts(self) -> Ask[Counts]:
        return Ask(scripts.COUNTS, self.keys.of(scripts.COUNTS), [self._prefix], self._read_counts)

    def _read_counts(self, reply: Reply) -> Counts:
        (
            waiting,
            active,
            completed,
            failed,
            delayed,
            held,
            keys,
            limit,
            mode,
            per_key,
            paused,
            kept,
            events,
            oldest,
            overdue,
        ) = reply
        return Counts(
            queue=self.queue_id,
            waiting=waiting,
            active=active,
            completed=completed,
            failed=failed,
            delayed=delayed,
            held=held,
            keys=keys,
            limit=_number(limit),
            mode=Mode(mode.decode()) if mode else Mode.GLOBAL,
            key_concurrency=_number(per_key),
            paused=bool(paused),
            events_kept=_number(kept),
            events=events,
            oldest_ms=None if oldest < 0 else oldest,
            overdue=overdue,
        )

    def page(self, state: JobState, *, skip: int = 0, most: int = 20) -> Ask[list[JobRecord]]:
        """Jobs in one state: those that run next, or ended last, come first."""
        index = self.keys["completed" if state is JobState.WAITING else str(state)]
        words: list[Word] = [self._prefix, str(state), skip, most]
        return Ask(scripts.PAGE, self.keys.of(scripts.PAGE, index=index), words, _read_page)

    def retry(self, ids: Sequence[str] = (), *, most: int = 0, actor: str = "") -> Ask[list[tuple[str, Finish]]]:
        """Put failed jobs back in line: those named, or the `most` oldest."""
        words: list[Word] = [self._prefix, actor, most, *ids]
        return Ask(scripts.RETRY, self.keys.of(scripts.RETRY), words, _read_pairs)

    def remove(self, ids: Sequence[str], *, actor: str = "") -> Ask[list[Finish]]:
        return Ask(scripts.REMOVE, self.keys.of(scripts.REMOVE), [self._prefix, actor, *ids], _codes)

    def cancel(self, ids: Sequence[str], *, why: str, keep: Keep | None, actor: str = "") -> Ask[list[int]]:
        """Cancel jobs: one code per id, 0 missing, 1 already over, 2 canceled, 3 canceled while it ran."""
        words: list[Word] = [self._prefix, actor, why, *retention_arguments(keep), *ids]
        return Ask(scripts.CANCEL, self.keys.of(scripts.CANCEL), words, list)

    def expire(self, *, most: int, keep: Keep | None, actor: str = "") -> Ask[int]:
        """Let jobs fail that did not start in time; gives how many were looked at."""
        words: list[Word] = [self._prefix, actor, most, *retention_arguments(keep)]
        return Ask(scripts.EXPIRE, self.keys.of(scripts.EXPIRE), words, int)

    def drain(self, *, most: int, delayed: bool, actor: str = "") -> Ask[int]:
        """Remove at most `most` waiting jobs; gives how many went."""
        return Ask(scripts.DRAIN, self.keys.of(scripts.DRAIN), [self._prefix, actor, most, int(delayed)], int)

    def trim(self, state: JobState, keep: Keep, *, most: int) -> Ask[int]:
        """Evict at most `most` finished jobs that retention no longer keeps; gives how many went."""
        _, age, count = retention_arguments(keep)
        keys = self.keys.of(scripts.TRIM, index=self.keys[str(state)])
        return Ask(scripts.TRIM, keys, [self._prefix, age, count, most], int)

    def obliterate(self, *, most: int, force: bool) -> Ask[tuple[Obliterated, int]]:
        words: list[Word] = [self._prefix, most, int(force)]
        return Ask(
            scripts.OBLITERATE,
            self.keys.of(scripts.OBLITERATE),
            words,
            lambda reply: (Obliterated(reply[0]), int(reply[1])),
        )

    def mend(self, *, most: int, really: bool) -> Ask[list[int]]:
        """Count ids without a job (waiting, active, completed, failed, delayed) and wrong counts per key; mend them."""
        return Ask(scripts.MEND, self.keys.of(scripts.MEND), [self._prefix, most, int(really)], list)


class TurnBuilder:
    """Puts together the turns of one worker, and reads what they bring."""

    def __init__(
        self, keys: QueueKeys, *, lease_ms: int, worker: str, keep: Keep | None, keyed: bool, ruled: bool
    ) -> None:
        self.keyed = keyed
        self.ruled = ruled
        self._keeps = keep is not None
        plain, longer = (scripts.TURN_KEYED, scripts.TURN_KEYED_RULED) if keyed else (scripts.TURN, scripts.TURN_RULED)
        self._script = longer if ruled else plain
        self._keys = keys.of(self._script)
        self._prefix = keys["jobs"]
        self._lease_ms = lease_ms
        self._worker = worker
        self._retention = retention_arguments(keep)

    def build(self, finished: Iterable[tuple[str, str, str | None, bytes]], *, claim: int, token: str) -> Ask[Turn]:
        """A turn that finishes jobs, given as (id, token, key, result), and then claims up to `claim`."""
        words: list[Word] = [self._prefix, claim, self._lease_ms, token, self._worker, *self._retention]
        for job_id, held_by, key, result in finished:
            words.append(job_id)
            words.append(held_by)
            if self.keyed:
                words.append(key or "")
            if self._keeps:
                words.append(result)
        return Ask(self._script, self._keys, words, read_turn)


def read_turn(reply: Reply) -> Turn:
    """What a turn brought, in the order in which it happened."""
    refusals, claims, due = reply
    claimed: list[Claimed] = []
    corrupt: list[str] = []
    items = iter(claims)
    for raw_id in items:
        fields = next(items)
        job_id = raw_id.decode("utf-8", "surrogateescape")
        if fields is None:
            corrupt.append(job_id)
            continue
        payload, runs, failures, opts, *key = fields
        group = key[0].decode("utf-8", "surrogateescape") if key and key[0] is not None else None
        claimed.append(Claimed(job_id, payload, _count(runs), _count(failures), opts, group))
    places = iter(refusals)
    refused = [(place - 1, Finish(next(places))) for place in places]
    return Turn(refused, claimed, corrupt, due if due >= 0 else None)


def _placing_words(placing: Placing, *, keyed: bool) -> list[Word]:
    """What add_placed.lua wants to know between who adds and the jobs."""
    dedup = placing.dedup
    extra = placing.extra_fields()
    expires: Word = "" if placing.expires_ms is None else placing.expires_ms
    once: list[Word] = ["", "", ""] if dedup is None else [str(dedup.rule), dedup.key, dedup.for_ms]
    return [int(keyed), placing.when(), expires, *once, len(extra) // 2, *extra]


def _with_no_key(jobs: Sequence[Word]) -> list[Word]:
    """Id, payload and an empty key of each job, from id and payload of each."""
    words: list[Word] = []
    for at in range(0, len(jobs), 2):
        words += (jobs[at], jobs[at + 1], "")
    return words


def stored_options(options: JobOptions) -> str:
    """The field `opts`: nothing where everything is as by default, so that nobody pays for it."""
    child = options.placing is not None and any(name == "parent" for name, _ in options.placing.fields)
    if options.backoff is None and options.timeout_ms is None and options.trace is None and not child:
        return ""
    stored = StoredOptions(backoff=options.backoff, timeout_ms=options.timeout_ms, child=child, trace=options.trace)
    return msgspec.json.encode(stored).decode()


def read_options(opts: bytes | None) -> StoredOptions:
    """The field `opts`; what another tool wrote there and we cannot read counts as nothing."""
    if not opts:
        return _NO_OPTIONS
    try:
        return msgspec.json.decode(opts, type=StoredOptions)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _NO_OPTIONS


_NO_OPTIONS = StoredOptions()


def _count(raw: bytes | None) -> int:
    # A counter may be missing (a client of another make), and need not be a number (a person with redis-cli).
    try:
        return int(raw) if raw else 0
    except ValueError:
        return 0


def _number(raw: bytes) -> int | None:
    return _count(raw) if raw else None


def _codes(reply: Reply) -> list[Finish]:
    return [Finish(code) for code in reply]


def _read_pairs(reply: Reply) -> list[tuple[str, Finish]]:
    items = iter(reply)
    return [(job_id.decode("utf-8", "surrogateescape"), Finish(next(items))) for job_id in items]


def _read_page(reply: Reply) -> list[JobRecord]:
    return [record_from(job_id.decode("utf-8", "surrogateescape"), fields) for job_id, fields in reply]


def _read_recovered(reply: Reply) -> list[Recovered]:
    return [
        Recovered(Finish(code), record_from(job_id.decode("utf-8", "surrogateescape"), fields))
        for code, job_id, fields in reply
    ]
