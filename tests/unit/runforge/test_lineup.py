"""The fast row of jobs decides as the pure rule does, whatever happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
import msgspec

from queueyard.runforge.lineup import LineUp
from queueyard.runforge.records import Job, Policy, group_key
from queueyard.runforge.rules import choose

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUPS = [None, "a", "b", "c", "d"]


class Against(RuleBasedStateMachine):
    """Does everything twice: to the fast structure, and to plain lists that the pure rule is asked about."""

    policy = Policy.FAIR

    def __init__(self) -> None:
        super().__init__()
        self.fast = LineUp(self.policy)
        self.known: dict[str, Job] = {}
        self.due: set[str] = set()
        self.paused: set[str] = set()
        self.served: dict[str, int] = {}
        self.services = 0

    def waiting(self) -> Iterable[Job]:
        return [job for name, job in self.known.items() if name in self.due]

    @rule(group=st.sampled_from(GROUPS), priority=st.integers(-2, 2), gpu=st.booleans())
    def a_job_comes(self, group: str | None, priority: int, gpu: bool) -> None:
        name = f"job-{len(self.known)}"
        job = Job(job_id=name, run_id=name, group_id=group, priority=priority, requires_gpu=gpu)
        self.known[name] = job
        self.due.add(name)
        self.fast.add(job)

    @precondition(lambda self: self.due)
    @rule(gpu_free=st.booleans(), comes_back=st.booleans())
    def the_next_one_is_served(self, gpu_free: bool, comes_back: bool) -> None:
        name = self.fast.next(gpu_free=gpu_free)
        if name is None:
            return
        job = self.known[name]
        self.fast.serve(job)
        self.due.discard(name)
        self.services += 1
        self.served[group_key(job)] = self.services
        if comes_back:
            self.fast.add(job)
            self.due.add(name)

    @precondition(lambda self: self.due)
    @rule(data=st.data())
    def any_job_is_canceled(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.due)))
        self.fast.forget(self.known[name])
        self.due.discard(name)

    @precondition(lambda self: self.due)
    @rule(data=st.data(), priority=st.integers(-2, 2))
    def any_job_changes_its_priority(self, data: st.DataObject, priority: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.due)))
        self.known[name] = msgspec.structs.replace(self.known[name], priority=priority)
        self.fast.add(self.known[name])

    @rule(group=st.sampled_from(["a", "b", "c", "d"]))
    def a_group_is_paused(self, group: str) -> None:
        self.paused.add(group)
        self.fast.pause(group)

    @rule(group=st.sampled_from(["a", "b", "c", "d"]))
    def a_group_is_resumed(self, group: str) -> None:
        self.paused.discard(group)
        self.fast.resume(group)

    @invariant()
    def both_choose_the_same_job(self) -> None:
        for gpu_free in (True, False):
            chosen = choose(
                self.waiting(),
                last_served=self.fast.last_served,
                served=self.served,
                paused=self.paused,
                gpu_free=gpu_free,
                policy=self.policy,
            )
            assert self.fast.next(gpu_free=gpu_free) == (chosen.job_id if chosen else None)
        assert len(self.fast) == len(self.due)
        assert self.fast.turns() == self.served


class AgainstContract(Against):
    policy = Policy.CONTRACT_V1


TestFairLineUp = Against.TestCase
TestFairLineUp.settings = settings(max_examples=60, stateful_step_count=40)
TestContractLineUp = AgainstContract.TestCase
TestContractLineUp.settings = settings(max_examples=30, stateful_step_count=40)


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=30))
def test_the_heaps_do_not_grow_with_the_number_of_decisions(groups: list[str]) -> None:
    line_up = LineUp()
    jobs = {f"{number}": Job(job_id=f"{number}", run_id="r", group_id=group) for number, group in enumerate(groups)}
    for job in jobs.values():
        line_up.add(job)

    for _ in range(500):
        name = line_up.next()
        assert name is not None
        line_up.serve(jobs[name])
        line_up.add(jobs[name])

    held = sum(map(len, line_up._claims)) + sum(len(heap) for one in line_up._groups.values() for heap in one.heaps)
    assert held <= 2 * (64 + 2 * len(set(groups)) + 1) + len(jobs) + len(set(groups))
