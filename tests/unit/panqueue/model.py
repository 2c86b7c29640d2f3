"""What the scripts do, said again in Python over plain dicts: the model that the simulation runs on.

`Model.run` takes the same script, keys and arguments as a server and gives the same reply. That it is the same is not
believed but tested: `tests/promises/test_panqueue_model.py` runs random calls through both and compares replies and
contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.panqueue.scripts import Script


def _b(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Model:
    """A server with nothing but queues on it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.data: dict[bytes, Any] = {}
        self.published: Callable[[bytes, bytes], None] = lambda _channel, _message: None
        #: told (what, id, token) for every claim and every end of one
        self.watch: Callable[[str, str, str], None] = lambda _what, _id, _token: None

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        names = dict(zip(script.keys, map(_b, keys), strict=True))
        step = self._trim_script if script.name == "trim" else getattr(self, f"_{script.name}")
        return step(names, list(map(_b, arguments)))

    # --- structures --------------------------------------------------------------------------------------------------

    def fields(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.data.get(key) or {}
        return found

    def zset(self, key: bytes) -> dict[bytes, float]:
        found: dict[bytes, float] = self.data.get(key) or {}
        return found

    def line(self, key: bytes) -> list[bytes]:
        found: list[bytes] = self.data.get(key) or []
        return found

    def _put(self, key: bytes, value: Any) -> None:
        if value:
            self.data[key] = value
        else:
            self.data.pop(key, None)

    def _hset(self, key: bytes, **fields: Any) -> None:
        self._put(key, self.fields(key) | {name.encode(): _b(value) for name, value in fields.items()})

    def _hdel(self, key: bytes, *fields: bytes) -> None:
        self._put(key, {name: value for name, value in self.fields(key).items() if name not in fields})

    def _zadd(self, key: bytes, member: bytes, score: float) -> None:
        self._put(key, self.zset(key) | {member: score})

    def _zrem(self, key: bytes, *members: bytes) -> None:
        self._put(key, {member: score for member, score in self.zset(key).items() if member not in members})

    def _ordered(self, key: bytes) -> list[bytes]:
        return [member for member, _ in sorted(self.zset(key).items(), key=lambda one: (one[1], one[0]))]

    def _count(self, raw: bytes | None) -> int:
        return int(raw) if raw else 0

    # --- parts -------------------------------------------------------------------------------------------------------

    def _trim(self, index: bytes, prefix: bytes, ttl: bytes, count: bytes, most: int) -> int:
        evicted = 0
        gone: list[bytes] = []
        if ttl:
            old = self._now_ms() - int(ttl)
            gone = [one for one in self._ordered(index) if self.zset(index)[one] <= old][:most]
            evicted += self._evict(index, prefix, gone)
        if count:
            surplus = min(len(self.zset(index)) - int(count), most)
            evicted += self._evict(index, prefix, self._ordered(index)[: max(0, surplus)])
        return evicted

    def _evict(self, index: bytes, prefix: bytes, ids: list[bytes]) -> int:
        self._zrem(index, *ids)
        for one in ids:
            self.data.pop(prefix + one, None)
        return len(ids)

    def _bury(self, k: dict[str, bytes], prefix: bytes, job_id: bytes, keep: bytes, ttl: bytes, most: bytes) -> None:
        if keep == b"0":
            self.data.pop(prefix + job_id, None)
            return
        self._hset(prefix + job_id, status="failed", finishedAt=self._now_ms())
        self._zadd(k["failed"], job_id, self._now_ms())
        self._trim(k["failed"], prefix, ttl, most, 100)

    def _is_keyed(self, k: dict[str, bytes]) -> bool:
        return self.fields(k["meta"]).get(b"mode") in {b"keyed", b"dynamic"}

    def _limit(self, k: dict[str, bytes], key: bytes) -> int:
        meta = self.fields(k["meta"])
        own = self.fields(k["k_limits"]).get(key) if meta.get(b"mode") == b"dynamic" else None
        return int(own or meta.get(b"keyConcurrency") or 1)

    def _place(self, k: dict[str, bytes], key: bytes) -> None:
        if key not in self.zset(k["k_ready"]):
            seq = self._count(self.fields(k["meta"]).get(b"seq")) + 1
            self._hset(k["meta"], seq=seq)
            self._zadd(k["k_ready"], key, seq)

    def _settle(self, k: dict[str, bytes], key: bytes) -> None:
        active = self._count(self.fields(k["k_active"]).get(key))
        if active < self._limit(k, key) and self.line(k["k_lists"] + key):
            self._place(k, key)
        else:
            self._zrem(k["k_ready"], key)

    def _release(self, k: dict[str, bytes], key: bytes, step: int = -1) -> None:
        active = self._count(self.fields(k["k_active"]).get(key)) + step
        if active > 0:
            self._hset(k["k_active"], **{key.decode(): active})
        else:
            self._hdel(k["k_active"], key)

    def _line_up(self, k: dict[str, bytes], prefix: bytes, job_id: bytes, *, to_front: bool) -> None:
        if not self._is_keyed(k):
            self._put(k["waiting"], [job_id, *self.line(k["waiting"])])
            return
        key = self.fields(prefix + job_id).get(b"concurrencyKey") or b""
        row = self.line(k["k_lists"] + key)
        self._put(k["k_lists"] + key, [job_id, *row] if to_front else [*row, job_id])
        self._settle(k, key)

    def _drop_lock(self, key: bytes) -> None:
        self._hdel(key, b"lockToken", b"leaseDeadline")

    # --- scripts -----------------------------------------------------------------------------------------------------

    def _schedule_due(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        return [self._now_ms(), -1, []]

    def _add(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        mode = self.fields(k["meta"]).get(b"mode")
        if mode and mode != b"global":
            return [1, mode]
        return self._add_jobs(k, a, 2)

    def _add_keyed(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        if not self._is_keyed(k):
            return [1, self.fields(k["meta"]).get(b"mode") or b""]
        return self._add_jobs(k, a, 3)

    def _add_jobs(self, k: dict[str, bytes], a: list[bytes], stride: int) -> Any:
        prefix, queue_id, max_retries, max_stalls, opts, ids_from, _actor = a[:7]
        rows = [a[at : at + stride] for at in range(7, len(a), stride)]
        if ids_from == b"1":
            taken = [place for place, row in enumerate(rows, 1) if prefix + row[0] in self.data]
            if taken:
                return [2, taken]
        touched: list[bytes] = []
        for row in rows:
            job_id, payload = row[0], row[1]
            fields: dict[str, Any] = {
                "id": job_id, "queueId": queue_id, "payload": payload, "status": "waiting", "runs": 0, "failures": 0,
                "stalls": 0, "maxRetries": max_retries, "maxStalls": max_stalls, "createdAt": self._now_ms(),
            }  # fmt: skip
            if stride == 3:
                fields["concurrencyKey"] = row[2]
                line = k["k_lists"] + row[2]
                self._put(line, [*self.line(line), job_id])
                if row[2] not in touched:
                    touched.append(row[2])
            else:
                self._put(k["waiting"], [job_id, *self.line(k["waiting"])])
            self._hset(prefix + job_id, **fields, **({"opts": opts} if opts else {}))
        for key in touched:
            self._settle(k, key)
        self.published(k["notify"], b"")
        return [0, 0]

    def _turn(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        return self._take_turn(k, a, keyed=False)

    def _turn_keyed(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        return self._take_turn(k, a, keyed=True)

    def _take_turn(self, k: dict[str, bytes], a: list[bytes], *, keyed: bool) -> Any:
        prefix, want, lease, token, _worker, keep, ttl, most = a[:8]
        refused, done = self._finish(k, a, keyed=keyed)
        if done and keep == b"1":
            self._trim(k["completed"], prefix, ttl, most, done + 100)
            self.published(k["finished"], b"")
        claimed: list[Any] = []
        paused = b"paused" in self.fields(k["meta"])
        if (int(want) <= 0 and not done) or paused:
            return [refused, claimed, -1]
        became_due = self._promote(k, prefix, keyed=keyed) if int(want) > 0 or not keyed else 0
        limit = self.fields(k["concurrency"]).get(b"limit")
        free = int(want) if limit is None else min(int(want), int(limit) - len(self.zset(k["active"])))
        free = self._affordable(k, free)
        pops = self._pop_keyed if keyed else self._pop
        deadline = self._now_ms() + int(lease)
        taken = pops(k, prefix, free, claimed, token, deadline) if free > 0 else 0
        due = -1
        if taken < int(want) and self._ordered(k["delayed"]):
            first = self._ordered(k["delayed"])[0]
            due = max(1, int(self.zset(k["delayed"])[first]) - self._now_ms())
        due = self._pay(k, taken, int(want), due)
        left = self.zset(k["k_ready"]) if keyed else self.line(k["waiting"])
        if (became_due or (done and (keyed or limit is not None))) and left:
            self.published(k["notify"], b"")
        return [refused, claimed, due]

    def _affordable(self, _k: dict[str, bytes], free: int) -> int:
        """How many may be claimed, as far as rates go; there are none here."""
        return free

    def _pay(self, _k: dict[str, bytes], _taken: int, _want: int, due: int) -> int:
        """Take what was claimed from the rates; gives when the next turn is due."""
        return due

    def _finish(self, k: dict[str, bytes], a: list[bytes], *, keyed: bool) -> tuple[list[int], int]:
        prefix, keep = a[0], a[5]
        stride = 2 + keyed + (keep == b"1")
        refused: list[int] = []
        freed: list[bytes] = []
        gone: list[bytes] = []
        done = 0
        for place, at in enumerate(range(8, len(a), stride), 1):
            job_id, token = a[at], a[at + 1]
            key = prefix + job_id
            if self.fields(key).get(b"lockToken") != token:
                refused += [place, int(key in self.data)]
                continue
            done += 1
            self.watch("finished", job_id.decode(), token.decode())
            self._zrem(k["active"], job_id)
            if keyed:
                freed.append(a[at + 2])
            if keep == b"1":
                self._drop_lock(key)
                result = a[at + stride - 1]
                more = {"result": result} if result else {}
                self._hset(key, status="completed", finishedAt=self._now_ms(), **more)
                self._zadd(k["completed"], job_id, self._now_ms())
            else:
                gone.append(key)
        # As the script does: hashes go when all tokens have been looked at.
        for key in gone:
            self.data.pop(key, None)
        for one in freed:
            self._release(k, one)
        self._place_in_order(k, [one for one in freed if self._may_run(k, one)])
        return refused, done

    def _may_run(self, k: dict[str, bytes], key: bytes) -> bool:
        active = self._count(self.fields(k["k_active"]).get(key))
        return active < self._limit(k, key) and bool(self.line(k["k_lists"] + key))

    def _place_in_order(self, k: dict[str, bytes], keys: list[bytes]) -> None:
        # As the script numbers them: each one counts, also one that has a place already and keeps it.
        seq = self._count(self.fields(k["meta"]).get(b"seq")) if keys else 0
        for key in keys:
            seq += 1
            if key not in self.zset(k["k_ready"]):
                self._zadd(k["k_ready"], key, seq)
        if keys:
            self._hset(k["meta"], seq=seq)

    def _promote(self, k: dict[str, bytes], prefix: bytes, *, keyed: bool) -> int:
        ready = [one for one in self._ordered(k["delayed"]) if self.zset(k["delayed"])[one] <= self._now_ms()][:100]
        self._zrem(k["delayed"], *ready)
        woken: list[bytes] = []
        for job_id in ready:
            if keyed:
                key = self.fields(prefix + job_id).get(b"concurrencyKey") or b""
                self._put(k["k_lists"] + key, [*self.line(k["k_lists"] + key), job_id])
                woken.append(key)
            else:
                self._put(k["waiting"], [job_id, *self.line(k["waiting"])])
            if prefix + job_id in self.data:
                self._hset(prefix + job_id, status="waiting")
        self._place_in_order(k, [one for one in woken if self._may_run(k, one)])
        return len(ready)

    def _pop(self, k: dict[str, bytes], prefix: bytes, free: int, out: list[Any], token: bytes, deadline: int) -> int:
        row = self.line(k["waiting"])
        popped = list(reversed(row[-free:]))
        self._put(k["waiting"], row[: len(row) - len(popped)])
        for job_id in popped:
            self._claim(k, prefix, job_id, out, token, deadline, keyed=False)
        return len(popped)

    def _pop_keyed(
        self, k: dict[str, bytes], prefix: bytes, free: int, out: list[Any], token: bytes, deadline: int
    ) -> int:
        taken = 0
        while taken < free:
            turns = self._ordered(k["k_ready"])[: free - taken]
            if not turns:
                break
            self._zrem(k["k_ready"], *turns)
            back: list[bytes] = []
            for key in turns:
                row = self.line(k["k_lists"] + key)
                if not self._may_run(k, key):
                    continue
                self._put(k["k_lists"] + key, row[1:])
                if self._claim(k, prefix, row[0], out, token, deadline, keyed=True):
                    self._release(k, key, +1)
                    taken += 1
                if self._may_run(k, key):
                    back.append(key)
            self._place_in_order(k, back)
        return taken

    def _claim(
        self,
        k: dict[str, bytes],
        prefix: bytes,
        job_id: bytes,
        out: list[Any],
        token: bytes,
        deadline: int,
        *,
        keyed: bool,
    ) -> bool:
        job = self.fields(prefix + job_id)
        out.append(job_id)
        if b"payload" not in job:
            out.append(None)
            return False
        names = (b"payload", b"runs", b"failures", b"opts", *((b"concurrencyKey",) if keyed else ()))
        out.append([job.get(name) for name in names])
        self._hset(
            prefix + job_id,
            status="active",
            runs=self._count(job.get(b"runs")) + 1,
            lastStartedAt=self._now_ms(),
            lockToken=token,
            leaseDeadline=deadline,
        )
        self._zadd(k["active"], job_id, deadline)
        self.watch("started", job_id.decode(), token.decode())
        return True

    def _fail(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        prefix, _worker, keep, ttl, most = a[:5]
        codes = [self._fail_one(k, prefix, a[at : at + 4], (keep, ttl, most)) for at in range(5, len(a), 4)]
        self.published(k["notify"], b"")
        return codes

    def _fail_one(self, k: dict[str, bytes], prefix: bytes, one: list[bytes], retention: tuple[bytes, ...]) -> int:
        job_id, token, why, wait = one
        key = prefix + job_id
        job = self.fields(key)
        if job.get(b"lockToken") != token:
            return int(key in self.data)
        failures = self._count(job.get(b"failures")) + 1
        group = job.get(b"concurrencyKey") or b""
        keyed = self._is_keyed(k)
        self._zrem(k["active"], job_id)
        self._drop_lock(key)
        self._hset(
            key, failures=failures, failureKind="handler", failedReason=why, lastError=why, lastFailedAt=self._now_ms()
        )
        if keyed:
            self._release(k, group)
        if int(wait) < 0 or failures > self._count(job.get(b"maxRetries")):
            self.watch("finished", job_id.decode(), token.decode())
            self._bury(k, prefix, job_id, *retention)
            if keyed:
                self._settle(k, group)
            return 4
        self.watch("lost", job_id.decode(), token.decode())
        if int(wait) > 0:
            self._hset(key, status="delayed")
            self._zadd(k["delayed"], job_id, self._now_ms() + int(wait))
            if keyed:
                self._settle(k, group)
            return 3
        self._hset(key, status="waiting")
        self._line_up(k, prefix, job_id, to_front=False)
        return 2

    def _recover(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        prefix, _actor, batch, keep, ttl, most = a[:6]
        told: list[Any] = []
        active = self.zset(k["active"])
        for job_id in [one for one in self._ordered(k["active"]) if active[one] <= self._now_ms()][: int(batch)]:
            key = prefix + job_id
            self._zrem(k["active"], job_id)
            job = self.fields(key)
            if b"id" not in job:
                told.append([5, job_id, []])
                continue
            stalls = self._count(job.get(b"stalls")) + 1
            failed = stalls > int(job.get(b"maxStalls") or 5)
            self.watch("finished" if failed else "lost", job_id.decode(), job.get(b"lockToken", b"").decode())
            self._drop_lock(key)
            now = self._now_ms()
            why = "stalled: lease expired"
            self._hset(key, stalls=stalls, failureKind="stalled", failedReason=why, lastStalledAt=now)
            keyed, group = self._is_keyed(k), job.get(b"concurrencyKey") or b""
            if keyed:
                self._release(k, group)
            if not failed:
                self._hset(key, status="waiting")
                told.append([2, job_id, _flat(self.fields(key))])
                self._line_up(k, prefix, job_id, to_front=True)
            else:
                self._hset(key, status="failed", finishedAt=now)
                told.append([4, job_id, _flat(self.fields(key))])
                self._bury(k, prefix, job_id, keep, ttl, most)
                if keyed:
                    self._settle(k, group)
        if told:
            self.published(k["notify"], b"")
        return told

    def _extend(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        prefix, lease = a[:2]
        deadline = self._now_ms() + int(lease)
        codes = []
        for at in range(2, len(a), 2):
            key = prefix + a[at]
            if self.fields(key).get(b"lockToken") != a[at + 1]:
                codes.append(int(key in self.data))
            elif a[at] not in self.zset(k["active"]):
                codes.append(1)
            else:
                self._zadd(k["active"], a[at], deadline)
                self._hset(key, leaseDeadline=deadline)
                codes.append(2)
        return codes

    def _hand_back(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        prefix, _worker, why = a[:3]
        codes = []
        for at in range(3, len(a), 2):
            job_id, key = a[at], prefix + a[at]
            job = self.fields(key)
            if job.get(b"lockToken") != a[at + 1]:
                codes.append(int(key in self.data))
                continue
            self.watch("lost", job_id.decode(), a[at + 1].decode())
            self._zrem(k["active"], job_id)
            self._drop_lock(key)
            self._hset(key, status="waiting", lastRequeuedAt=self._now_ms(), lastRequeueReason=why)
            if self._is_keyed(k):
                self._release(k, job.get(b"concurrencyKey") or b"")
            self._line_up(k, prefix, job_id, to_front=True)
            codes.append(2)
        self.published(k["notify"], b"")
        return codes

    def _declare_mode(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        mode, limit = a
        meta = self.fields(k["meta"])
        stored, stored_limit = meta.get(b"mode"), meta.get(b"keyConcurrency") or b""
        if stored is None:
            if mode == b"global":
                return [0, b"global", b""]
            if any(self.data.get(k[name]) for name in ("waiting", "active", "delayed")):
                return [1, b"global", b""]
            self._hset(k["meta"], mode=mode, keyConcurrency=limit or b"1")
            return [0, mode, limit or b"1"]
        if stored != mode:
            return [1, stored, stored_limit]
        return [2 if mode != b"global" and limit and stored_limit != limit else 0, mode, stored_limit]

    def _declare_limit(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        limit, version = int(a[0]), int(a[1])
        stored = self.fields(k["concurrency"])
        if not stored or version > int(stored[b"version"]):
            self._hset(k["concurrency"], limit=limit, version=version)
            return [0, limit]
        old = int(stored[b"limit"])
        if version < int(stored[b"version"]):
            return [2, old]
        return [1 if old == limit else 3, old]

    def _key_limit(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        if self.fields(k["meta"]).get(b"mode") != b"dynamic":
            return 1
        if a[1]:
            self._hset(k["k_limits"], **{a[0].decode(): a[1]})
        else:
            self._hdel(k["k_limits"], a[0])
        self._settle(k, a[0])
        self.published(k["notify"], b"")
        return 0

    def _pause(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        paused = a[0] == b"1"
        if paused == (b"paused" in self.fields(k["meta"])):
            return 0
        if paused:
            self._hset(k["meta"], paused=1)
        else:
            self._hdel(k["meta"], b"paused")
            self.published(k["notify"], b"")
        return 1

    def _trim_script(self, k: dict[str, bytes], a: list[bytes]) -> Any:
        return self._trim(k["index"], a[0], a[1], a[2], int(a[3]))


def _flat(fields: dict[bytes, bytes]) -> list[bytes]:
    return [word for pair in fields.items() for word in pair]
