"""The model of what depends on the clock: deduplication, rate limits, schedules.

As `model.py`. A text that ends by itself stands in `data` as long as it has not ended; `ends` says when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import math
from typing import Any

from unit.panqueue.model_features import FeatureModel, Keys


@dataclass(frozen=True)
class Bucket:
    """`count` tokens per `per` ms, at most `burst`."""

    count: int
    per: int
    burst: int

    def tokens(self, text: bytes | None, now: int) -> tuple[float, int]:
        """(how many there are, since when)."""
        if text is None:
            return self.burst, now
        tokens, at = text.split()
        return min(self.burst, float(tokens) + max(0, now - int(at)) * self.count / self.per), int(at)

    def ms_until_next(self, tokens: float, at: int, now: int) -> int:
        return max(1, max(0, at - now) + math.ceil((1 - tokens) * self.per / self.count))

    def ms_until_full(self, tokens: float) -> int:
        return math.ceil((self.burst - tokens) * self.per / self.count)


@dataclass
class KeyedTurn:
    """What one turn in a keyed queue with rates knows of its keys."""

    now: int
    rate: Bucket | None
    asked: int
    want: int
    tokens: float = 0
    since: int = 0
    #: of each key that was met, in order: its tokens, since when, and how many of it may be active
    budgets: dict[bytes, tuple[float, int, int]] = field(default_factory=dict)


class ClockModel(FeatureModel):
    """A server whose time passes when it is told to."""

    def __init__(self, start_ms: int) -> None:
        super().__init__(lambda: self.now_ms)
        self.now_ms = start_ms
        self.ends: dict[bytes, int] = {}

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for key in [key for key, end in self.ends.items() if end <= self.now_ms]:
            self._forget(key)

    def _set(self, key: bytes, text: bytes, for_ms: int) -> None:
        self.data[key] = text
        self.ends[key] = self.now_ms + for_ms

    def _forget(self, key: bytes) -> None:
        self.data.pop(key, None)
        self.ends.pop(key, None)

    # --- deduplication -----------------------------------------------------------------------------------------------

    def _holder(self, k: Keys, prefix: bytes, rule: bytes, key: bytes) -> bytes | None:
        before: bytes | None = self.data.get(k["dedups"] + key)
        if before is None:
            return None
        status = self.fields(prefix + before).get(b"status")
        if rule == b"debounce":
            if status == b"delayed" and before in self.zset(k["delayed"]):
                self._zrem(k["delayed"], before)
                self._zrem(k["expiry"], before)
                self.data.pop(prefix + before)
            return None
        is_held = rule == b"throttle" or status not in {None, b"completed", b"failed"}
        return before if is_held else None

    def _hold(self, k: Keys, rule: bytes, key: bytes, job_id: bytes, for_ms: int) -> None:
        assert rule in {b"unfinished", b"throttle", b"debounce"}
        self._set(k["dedups"] + key, job_id, for_ms)

    # --- rates -------------------------------------------------------------------------------------------------------

    def _bucket(self, k: Keys, name: str) -> Bucket | None:
        found = [self.fields(k["meta"]).get(f"{name}{part}".encode()) for part in ("Count", "Ms", "Burst")]
        return None if found[0] is None else Bucket(*(int(one or 0) for one in found))

    def _keep(self, key: bytes, tokens: float, bucket: Bucket) -> None:
        full_in = bucket.ms_until_full(tokens)
        if full_in > 0:
            self._set(key, b"%.6f %d" % (tokens, self.now_ms), full_in)
        else:
            self._forget(key)

    def _tokens(self, key: bytes, bucket: Bucket) -> tuple[float, int]:
        tokens, since = bucket.tokens(self.data.get(key), self.now_ms)
        return (0, since) if since > self.now_ms else (tokens, since)

    def _affordable(self, k: Keys, free: int) -> int:
        rate = self._bucket(k, "rate") if "rate" in k else None
        return free if rate is None else min(free, math.floor(self._tokens(k["rate"], rate)[0]))

    def _pay(self, k: Keys, taken: int, want: int, due: int) -> int:
        rate = self._bucket(k, "rate") if "rate" in k else None
        if rate is None:
            return due
        tokens, since = self._tokens(k["rate"], rate)
        tokens -= taken
        if taken:
            self._keep(k["rate"], tokens, rate)
        left = self.line(k["waiting"]) or self.zset(k["ranked"])
        if taken < want and left and tokens < 1:
            wait = rate.ms_until_next(tokens, since, self.now_ms)
            due = wait if due < 0 else min(due, wait)
        return due

    def _postpone(self, k: Keys, a: list[bytes]) -> Any:
        codes = super()._postpone(k, a)
        for code, wait, everybody in zip(codes, a[5::5], a[6::5], strict=True):
            if code == 3 and everybody == b"1":
                self._set(k["rate"], b"0 %d" % (self.now_ms + int(wait)), max(1, 2 * int(wait)))
        return codes

    # --- turns by key ------------------------------------------------------------------------------------------------

    def _turn_keyed_ruled(self, k: Keys, a: list[bytes]) -> Any:
        prefix, want, lease, token, _worker, keep, ttl, most = a[:8]
        key_rate = self._bucket(k, "keyRate")
        freed = a[10 :: 3 + (keep == b"1")]
        held = [place for place, at in enumerate(range(8, len(a), 3 + (keep == b"1"))) if self._is_held(prefix, a, at)]
        refused, done = self._finish(k, a, keyed=True)
        if done and keep == b"1":
            self._trim(k["completed"], prefix, ttl, most, done + 100)
        turn = KeyedTurn(self.now_ms, self._bucket(k, "rate"), asked=int(want), want=int(want))
        if key_rate is not None:
            self._meet(k, turn, key_rate, [freed[place] for place in held])
            self._release_limited(k, turn, key_rate)
        if turn.rate is not None:
            turn.tokens, turn.since = self._tokens(k["rate"], turn.rate)
            turn.want = min(turn.want, math.floor(turn.tokens))
        claimed: list[Any] = []
        due = -1
        if turn.want > 0 and b"paused" not in self.fields(k["meta"]):
            self._promote_within(k, prefix, turn, key_rate)
            taken = self._claim_within(k, prefix, turn, key_rate, claimed, token, self.now_ms + int(lease))
            if taken < turn.want and self.zset(k["delayed"]):
                due = max(1, int(min(self.zset(k["delayed"]).values())) - self.now_ms)
        waits = [*self._wait_for_queue(k, turn, claimed), *self._wait_for_keys(k, turn, key_rate, claimed)]
        if waits and len(claimed) // 2 < turn.asked:
            due = min(waits) if due < 0 else min(due, *waits)
        return [refused, claimed, due]

    def _is_held(self, prefix: bytes, a: list[bytes], at: int) -> bool:
        return self.fields(prefix + a[at]).get(b"lockToken") == a[at + 1]

    def _meet(self, k: Keys, turn: KeyedTurn, bucket: Bucket, keys: list[bytes]) -> None:
        for key in keys:
            if key not in turn.budgets:
                tokens, since = bucket.tokens(self.data.get(k["k_rates"] + key), turn.now)
                allowed = self._active(k, key) + math.floor(tokens)
                turn.budgets[key] = (tokens, since, min(self._limit(k, key), allowed))

    def _active(self, k: Keys, key: bytes) -> int:
        return self._count(self.fields(k["k_active"]).get(key))

    def _release_limited(self, k: Keys, turn: KeyedTurn, bucket: Bucket) -> None:
        limited = self.zset(k["k_limited"])
        over = [key for key in self._ordered(k["k_limited"]) if limited[key] <= turn.now][: 100 + 2 * turn.asked]
        self._zrem(k["k_limited"], *over)
        self._meet(k, turn, bucket, over)
        self._place_in_order(k, [key for key in over if self._may_run(k, key)])

    def _may_run_within(self, k: Keys, turn: KeyedTurn, key: bytes) -> bool:
        budget = turn.budgets.get(key)
        return self._may_run(k, key) and (budget is None or self._active(k, key) < budget[2])

    def _promote_within(self, k: Keys, prefix: bytes, turn: KeyedTurn, key_rate: Bucket | None) -> None:
        delayed = self.zset(k["delayed"])
        woken: list[bytes] = []
        for job_id in [one for one in self._ordered(k["delayed"]) if delayed[one] <= turn.now][:100]:
            key = self.fields(prefix + job_id).get(b"concurrencyKey") or b""
            self._zrem(k["delayed"], job_id)
            self._put(k["k_lists"] + key, [*self.line(k["k_lists"] + key), job_id])
            self._hset(prefix + job_id, status="waiting")
            woken.append(key)
        if key_rate is not None:
            self._meet(k, turn, key_rate, woken)
        self._place_in_order(k, [key for key in woken if self._may_run_within(k, turn, key)])

    def _claim_within(
        self,
        k: Keys,
        prefix: bytes,
        turn: KeyedTurn,
        key_rate: Bucket | None,
        out: list[Any],
        token: bytes,
        deadline: int,
    ) -> int:
        limit = self.fields(k["concurrency"]).get(b"limit")
        free = turn.want if limit is None else min(turn.want, int(limit) - len(self.zset(k["active"])))
        taken = 0
        while taken < free and (keys := self._ordered(k["k_ready"])[: free - taken]):
            self._zrem(k["k_ready"], *keys)
            if key_rate is not None:
                self._meet(k, turn, key_rate, keys)
            back: list[bytes] = []
            for key in keys:
                if not self._may_run_within(k, turn, key):
                    continue
                job_id, *rest = self.line(k["k_lists"] + key)
                self._put(k["k_lists"] + key, rest)
                if self._claim(k, prefix, job_id, out, token, deadline, keyed=True):
                    self._release(k, key, +1)
                    taken += 1
                if self._may_run_within(k, turn, key):
                    back.append(key)
            self._place_in_order(k, back)
        return taken

    def _wait_for_queue(self, k: Keys, turn: KeyedTurn, claimed: list[Any]) -> list[int]:
        if turn.rate is None:
            return []
        tokens = turn.tokens - len(claimed) // 2
        if claimed:
            self._keep(k["rate"], tokens, turn.rate)
        if turn.asked > turn.want and self.zset(k["k_ready"]):
            return [turn.rate.ms_until_next(tokens, turn.since, turn.now)]
        return []

    def _wait_for_keys(self, k: Keys, turn: KeyedTurn, key_rate: Bucket | None, claimed: list[Any]) -> list[int]:
        if key_rate is None:
            return []
        started = [job[4] for job in claimed[1::2] if job is not None]
        for key, (tokens, since, _) in turn.budgets.items():
            rest = tokens - started.count(key)
            if key in started:
                self._keep(k["k_rates"] + key, rest, key_rate)
            if rest < 1 and self._may_run(k, key):
                self._zadd(k["k_limited"], key, turn.now + key_rate.ms_until_next(rest, since, turn.now))
        limited = self.zset(k["k_limited"])
        return [max(1, int(min(limited.values())) - turn.now)] if limited else []
