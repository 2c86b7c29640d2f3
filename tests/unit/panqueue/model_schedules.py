"""The model of the scripts of schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unit.panqueue.model_clock import ClockModel

if TYPE_CHECKING:
    from unit.panqueue.model_features import Keys


class WholeModel(ClockModel):
    """A server with all that queues have."""

    def _schedule_put(self, k: Keys, a: list[bytes]) -> Any:
        name, spec, next_slot, paused, last = a
        before = self.fields(k["schedule"])
        if before.get(b"last", b"") != last:
            return 1
        if not spec:
            self._zrem(k["schedules"], name)
            self.data.pop(k["schedule"], None)
            return 0 if before else 2
        revision = self._count(before.get(b"revision")) + 1
        self._hset(k["schedule"], spec=spec, next=next_slot, paused=paused, revision=revision)
        rests = paused == b"1" or not next_slot
        self._zadd(k["schedules"], name, math.inf if rests else int(next_slot))
        return 0

    def _schedule_due(self, k: Keys, a: list[bytes]) -> Any:
        names = self._ordered(k["schedules"])
        slots = self.zset(k["schedules"])
        if a[1] == b"1":
            names = [name for name in names if slots[name] <= self.now_ms]
        found: list[Any] = []
        for name in names[: int(a[0])]:
            fields = self.fields(k["schedule"] + name)
            found += [name, [fields.get(one) for one in (b"spec", b"next", b"last", b"paused", b"fired", b"revision")]]
        first = min(slots.values(), default=math.inf)
        return [self.now_ms, -1 if first == math.inf else max(0, int(first) - self.now_ms), found]

    def _schedule_fire(self, k: Keys, a: list[bytes]) -> Any:
        prefix, queue_id, name, revision, expected, next_slot, last, payload, group, *options = a[:13]
        stored = self.fields(k["schedule"])
        is_known = (stored.get(b"revision"), stored.get(b"next")) == (revision, expected)
        if not is_known or stored.get(b"paused") == b"1" or int(expected) > self.now_ms:
            return [1, 0]
        if self._is_keyed(k) != bool(group):
            return [2, 0]
        fresh = [job_id for job_id in a[13:] if prefix + job_id not in self.data]
        for job_id in fresh:
            self._add_slot(k, prefix, job_id, (queue_id, payload, name, group), options)
        fired = self._count(stored.get(b"fired")) + len(fresh)
        self._hset(k["schedule"], next=next_slot, last=last, fired=fired)
        self._zadd(k["schedules"], name, int(next_slot) if next_slot else math.inf)
        return [0, len(fresh)]

    def _add_slot(
        self, k: Keys, prefix: bytes, job_id: bytes, about: tuple[bytes, bytes, bytes, bytes], options: list[bytes]
    ) -> None:
        queue_id, payload, name, group = about
        max_retries, max_stalls, opts, priority = options
        more: dict[str, Any] = {"concurrencyKey": group} if group else {}
        more |= {"opts": opts} if opts else {}
        more |= {"priority": priority} if priority != b"0" else {}
        self._hset(
            prefix + job_id, id=job_id, queueId=queue_id, payload=payload, status="waiting", runs=0, failures=0,
            stalls=0, maxRetries=max_retries, maxStalls=max_stalls, createdAt=self.now_ms, schedule=name, **more,
        )  # fmt: skip
        self._line_up(k, prefix, job_id, to_front=False)
