"""The model of the scripts behind the features that move jobs: places of their own, priorities, cancelling, flows.

As `model.py`: plain dicts, the same replies, compared with the real scripts by random calls. Deduplication, rate limits
and schedules are in `model_clock.py`: what they do depends on the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from unit.panqueue.model import Model

Keys = dict[str, bytes]


class FeatureModel(Model, ABC):
    """A server with nothing but queues on it, and all of their features."""

    # --- adding ------------------------------------------------------------------------------------------------------

    def _add_placed(self, k: Keys, a: list[bytes]) -> Any:
        prefix, queue_id, max_retries, max_stalls, opts, ids_from, _actor, wants_keyed, when, expires, rule = a[:11]
        assert ids_from == b"1", "not modelled"
        if self._is_keyed(k) != (wants_keyed == b"1"):
            return [1, self.fields(k["meta"]).get(b"mode") or b""]
        extra = a[14 : 14 + 2 * int(a[13])]
        fields = dict(zip([name.decode() for name in extra[::2]], extra[1::2], strict=True))
        rows = [a[at : at + 3] for at in range(14 + len(extra), len(a), 3)]
        taken = [place for place, row in enumerate(rows, 1) if prefix + row[0] in self.data]
        if taken:
            return [2, taken]
        if rule and (holder := self._holder(k, prefix, rule, a[11])) is not None:
            return [3, holder]
        now = self._now_ms()
        due = 0 if not when else int(when[1:]) + (now if when[:1] == b"+" else 0)
        status = "held" if "plan" in fields else "delayed" if due > now else "waiting"
        for job_id, payload, key in rows:
            more: dict[str, Any] = {"concurrencyKey": key} if self._is_keyed(k) else {}
            more |= {"opts": opts} if opts else {}
            self._hset(
                prefix + job_id, id=job_id, queueId=queue_id, payload=payload, status=status, runs=0, failures=0,
                stalls=0, maxRetries=max_retries, maxStalls=max_stalls, createdAt=now, **fields, **more,
            )  # fmt: skip
            if status == "held":
                self._zadd(k["held"], job_id, now)
                self._zadd(k["unplanted"], job_id, now)
            elif status == "delayed":
                self._zadd(k["delayed"], job_id, due)
            else:
                self._line_up(k, prefix, job_id, to_front=False)
            if expires:
                self._zadd(k["expiry"], job_id, now + int(expires))
            if rule:
                self._hold(
                    k, rule, a[11], job_id, int(a[12]) if rule == b"throttle" else 604_800_000 + max(0, due - now)
                )
        self.published(k["notify"], b"")
        return [0, 0]

    @abstractmethod
    def _holder(self, k: Keys, prefix: bytes, rule: bytes, key: bytes) -> bytes | None:
        """The job that keeps another one with its deduplication key out."""

    @abstractmethod
    def _hold(self, k: Keys, rule: bytes, key: bytes, job_id: bytes, for_ms: int) -> None:
        """Let a job keep others with its deduplication key out."""

    # --- turns -------------------------------------------------------------------------------------------------------

    def _turn_ruled(self, k: Keys, a: list[bytes]) -> Any:
        return self._take_turn(k, a, keyed=False)

    def _promote(self, k: Keys, prefix: bytes, *, keyed: bool) -> int:
        became_due = super()._promote(k, prefix, keyed=keyed)
        if self._is_ranked(k):
            self._rank(k, prefix)
        return became_due

    def _is_ranked(self, k: Keys) -> bool:
        return "ranked" in k and b"ranked" in self.fields(k["meta"])

    def _rank(self, k: Keys, prefix: bytes) -> None:
        meta = self.fields(k["meta"])
        rank = max(self._count(meta.get(b"rank")), self._now_ms() * 1_000)
        line = self.line(k["waiting"])
        for job_id in reversed(line):
            rank += 1
            priority = int(self.fields(prefix + job_id).get(b"priority") or 0)
            self._zadd(k["ranked"], job_id, rank - priority * int(meta[b"ranked"]))
        if line:
            self._put(k["waiting"], [])
            self._hset(k["meta"], rank=rank)

    def _pop(self, k: Keys, prefix: bytes, free: int, out: list[Any], token: bytes, deadline: int) -> int:
        if not self._is_ranked(k):
            return super()._pop(k, prefix, free, out, token, deadline)
        popped = self._ordered(k["ranked"])[:free]
        self._zrem(k["ranked"], *popped)
        for job_id in popped:
            self._claim(k, prefix, job_id, out, token, deadline, keyed=False)
        return len(popped)

    def _postpone(self, k: Keys, a: list[bytes]) -> Any:
        prefix = a[0]
        codes: list[int] = []
        for at in range(2, len(a), 5):
            job_id, token, why, wait, _everybody = a[at : at + 5]
            job = self.fields(prefix + job_id)
            if job.get(b"lockToken") != token:
                codes.append(int(prefix + job_id in self.data))
                continue
            self._zrem(k["active"], job_id)
            self._drop_lock(prefix + job_id)
            self._hset(prefix + job_id, status="delayed", lastRequeuedAt=self._now_ms(), lastRequeueReason=why)
            self._zadd(k["delayed"], job_id, self._now_ms() + int(wait))
            self._free(k, job)
            codes.append(3)
        return codes

    def _free(self, k: Keys, job: dict[bytes, bytes]) -> None:
        if self._is_keyed(k):
            key = job.get(b"concurrencyKey") or b""
            self._release(k, key)
            self._settle(k, key)

    # --- ends --------------------------------------------------------------------------------------------------------

    def _cancel(self, k: Keys, a: list[bytes]) -> Any:
        prefix, _actor, why, *retention = a[:6]
        return [self._withdraw(k, prefix, job_id, b"canceled", why, retention) for job_id in a[6:]]

    def _expire(self, k: Keys, a: list[bytes]) -> Any:
        prefix, _actor, batch, *retention = a[:6]
        over = [one for one in self._ordered(k["expiry"]) if self.zset(k["expiry"])[one] <= self._now_ms()]
        for job_id in over[: int(batch)]:
            if self.fields(prefix + job_id).get(b"runs") == b"0":
                self._withdraw(k, prefix, job_id, b"expired", b"expired before it started", retention)
            self._zrem(k["expiry"], job_id)
        return len(over[: int(batch)])

    def _withdraw(self, k: Keys, prefix: bytes, job_id: bytes, kind: bytes, why: bytes, retention: list[bytes]) -> int:
        job = self.fields(prefix + job_id)
        status = job.get(b"status")
        if status is None:
            return 0
        if status in {b"completed", b"failed"}:
            return 1
        for index in ("active", "delayed", "held", "unplanted", "ranked", "expiry"):
            self._zrem(k[index], job_id)
        row = k["k_lists"] + (job.get(b"concurrencyKey") or b"") if self._is_keyed(k) else k["waiting"]
        self._put(row, [one for one in self.line(row) if one != job_id])
        if status == b"active":
            self._drop_lock(prefix + job_id)
            self._free(k, job)
        elif self._is_keyed(k):
            self._settle(k, job.get(b"concurrencyKey") or b"")
        self._hset(prefix + job_id, failureKind=kind, failedReason=why, lastFailedAt=self._now_ms())
        self._bury(k, prefix, job_id, *retention)
        return 3 if status == b"active" else 2

    # --- flows -------------------------------------------------------------------------------------------------------

    def _tell_parent(self, k: Keys, a: list[bytes]) -> Any:
        prefix, job_id, name, well, text, policy, _actor, *retention = a
        key = prefix + job_id
        job = self.fields(key)
        if not job:
            return 0
        if b"kid:" + name in job:
            return 1
        pending = self._count(job.get(b"pending")) - 1
        self._hset(key, **{f"kid:{name.decode()}": (b"+" if well == b"1" else b"-") + text}, pending=pending)
        if job.get(b"status") != b"held":
            return 1
        if well == b"0" and policy == b"fail":
            self._zrem(k["held"], job_id)
            self._zrem(k["unplanted"], job_id)
            why = b"child " + name + b" failed: " + text
            self._hset(key, failureKind="child", failedReason=why, lastFailedAt=self._now_ms())
            self._bury(k, prefix, job_id, *retention)
            return 4
        if pending > 0 and (well == b"1" or policy != b"continue"):
            return 2
        self._zrem(k["held"], job_id)
        self._hset(key, status="waiting")
        self._line_up(k, prefix, job_id, to_front=False)
        return 3
