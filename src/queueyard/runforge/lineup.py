"""The queued jobs in the order in which they may run: `rules.choose`, but in a few microseconds at any size. Pure.

Within a group two heaps, one for jobs that need a GPU and one for the others. Over the groups two heaps again: by the
best head of any kind, and by the best head that needs no GPU. Nothing is ever searched for in a heap: an entry that
is no longer true is thrown away when it comes to the top, and whatever becomes true is pushed.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from queueyard.runforge.records import Job, Policy, group_key

if TYPE_CHECKING:
    from collections.abc import Iterable

#: (turn of the group, place of its head, group)
_Claim = tuple[int, int, str]
_SPARE_CLAIMS = 64


class _Group:
    """The due jobs of one group."""

    __slots__ = ("claimed", "heaps", "turn")

    def __init__(self) -> None:
        #: what it last pushed into each heap of groups, so that a row of a thousand jobs pushes one claim
        self.claimed: list[_Claim | None] = [None, None]
        #: without and with a GPU: (-priority, place, job)
        self.heaps: tuple[list[tuple[int, int, str]], list[tuple[int, int, str]]] = ([], [])
        #: number of its last service; 0 before the first
        self.turn = 0


class LineUp:
    """Who is next. Jobs come in with `add`, and leave with `remove` when they are started or ended."""

    def __init__(self, policy: Policy = Policy.FAIR) -> None:
        self._policy = policy
        self._groups: dict[str, _Group] = {}
        #: job -> its entry in a heap of its group, as long as it is due
        self._entries: dict[str, tuple[int, int, str]] = {}
        #: the place of jobs that are not due, running ones too: a job that comes back has its old place
        self._places: dict[str, int] = {}
        self._next_place = 0
        self._paused: set[str] = set()
        self._claims: tuple[list[_Claim], list[_Claim]] = ([], [])
        #: due jobs that need a GPU; as long as there are none, the second heap of claims is not kept
        self._gpu_jobs = 0
        self._services = 0
        self.last_served: str | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._entries

    def remember(self, job: Job) -> None:
        """Give a job its place in the order of arrival, before it is due."""
        if job.job_id not in self._entries and job.job_id not in self._places:
            self._places[job.job_id] = self._next_place
            self._next_place += 1

    def add(self, job: Job) -> None:
        """A queued job is due."""
        self.remove(job)
        self.remember(job)
        name = group_key(job)
        group = self._groups.setdefault(name, _Group())
        entry = (-job.priority, self._places.pop(job.job_id), job.job_id)
        self._entries[job.job_id] = entry
        heappush(group.heaps[job.requires_gpu], entry)
        self._gpu_jobs += job.requires_gpu
        if job.requires_gpu and self._gpu_jobs == 1:
            self._renew_claims(1)
        self._claim(name)

    def remove(self, job: Job) -> None:
        """A job is not due any more: ended or waiting."""
        if self._take_out(job):
            self._claim(group_key(job))

    def _take_out(self, job: Job) -> bool:
        entry = self._entries.pop(job.job_id, None)
        if entry is None:
            return False
        self._places[job.job_id] = entry[1]
        self._gpu_jobs -= job.requires_gpu
        return True

    def forget(self, job: Job) -> None:
        """A job ended and will not come back."""
        self.remove(job)
        self._places.pop(job.job_id, None)

    def serve(self, job: Job) -> None:
        """A job was started: it is out, and its group goes to the end of the row."""
        self._take_out(job)
        self._services += 1
        self.set_turn(group_key(job), self._services)
        self.last_served = group_key(job)

    def set_turn(self, name: str, turn: int) -> None:
        """When a group was served last, as the number of that service."""
        self._services = max(self._services, turn)
        self._groups.setdefault(name, _Group()).turn = turn
        self._claim(name)

    def turns(self) -> dict[str, int]:
        """The number of its last service for each group that had one."""
        return {name: group.turn for name, group in self._groups.items() if group.turn}

    def pause(self, name: str) -> None:
        self._paused.add(name)

    def resume(self, name: str) -> None:
        self._paused.discard(name)
        self._claim(name)

    def paused(self) -> Iterable[str]:
        return self._paused

    def next(self, *, gpu_free: bool = True) -> str | None:
        """The job to start next; it stays in the row until it is removed."""
        which = int(not gpu_free and self._gpu_jobs > 0)
        best = self._top(which)
        if best is None:
            return None
        if best[2] == self.last_served:
            # spec: step 4, prefer another group
            heappop(self._claims[which])
            other = self._top(which, but=best)
            heappush(self._claims[which], best)
            best = other or best
        head = self._head(best[2], gpu_free=not which)
        return None if head is None else head[2]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _top(self, which: int, *, but: _Claim | None = None) -> _Claim | None:
        """The best claim that is still true; those that are not are thrown away."""
        claims = self._claims[which]
        while claims:
            claim = claims[0]
            # The same claim may have been pushed twice.
            if claim != but and claim == self._claim_of(claim[2], gpu_free=not which):
                return claim
            heappop(claims)
            group = self._groups[claim[2]]
            if claim != but and group.claimed[which] == claim:
                group.claimed[which] = None
        return None

    def _claim(self, name: str) -> None:
        """Whatever changed in the group: its present claims are in the heaps."""
        group = self._groups.get(name)
        if group is None:
            return
        for which, claims in enumerate(self._claims[: 2 if self._gpu_jobs else 1]):
            claim = self._claim_of(name, gpu_free=not which)
            if claim is not None and claim != group.claimed[which]:
                heappush(claims, claim)
                group.claimed[which] = claim
            if len(claims) > 2 * len(self._groups) + _SPARE_CLAIMS:
                self._renew_claims(which)

    def _renew_claims(self, which: int) -> None:
        """Put only what is true into a heap; one that is hardly ever asked would keep all that ever was."""
        claims = self._claims[which]
        claims.clear()
        for name, group in self._groups.items():
            group.claimed[which] = claim = self._claim_of(name, gpu_free=not which)
            if claim is not None:
                claims.append(claim)
        heapify(claims)

    def _claim_of(self, name: str, *, gpu_free: bool) -> _Claim | None:
        if name in self._paused:
            return None
        head = self._head(name, gpu_free=gpu_free)
        if head is None:
            return None
        turn = self._groups[name].turn if self._policy is Policy.FAIR else 0
        return turn, head[1], name

    def _head(self, name: str, *, gpu_free: bool) -> tuple[int, int, str] | None:
        group = self._groups.get(name)
        if group is None:
            return None
        plain, gpu = self._first(group.heaps[0]), self._first(group.heaps[1]) if gpu_free else None
        if plain is None or gpu is None:
            return plain or gpu
        return min(plain, gpu)

    def _first(self, heap: list[tuple[int, int, str]]) -> tuple[int, int, str] | None:
        while heap and self._entries.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return heap[0] if heap else None
