"""What the trim script leaves is what the rule says, for any finished jobs and any bounds."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.records import JobState, Keep
from queueyard.panqueue.rules import survivors
from queueyard.panqueue.store import QueueStore
from servers import Server, fresh_id, valkey

__all__ = ["valkey"]

#: how long ago each job ended, seconds; far enough from the bounds that the time of the test does not matter
ages = st.lists(st.sampled_from([10, 500, 990, 1_500, 5_000, 90_000]), max_size=30)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ages, st.none() | st.integers(0, 12), st.none() | st.sampled_from([100, 1_000, 10_000]))
def test_the_script_evicts_what_the_rule_evicts(
    valkey: Server, ended_ago: list[int], count: int | None, age_s: int | None
) -> None:
    line, store, keep = Line(parse_address(valkey.url)), QueueStore(fresh_id()), Keep(count=count, age_s=age_s)
    seconds, _ = line.call("TIME")
    now = int(seconds) * 1_000
    finished = [(f"j{place:02}", now - ago * 1_000) for place, ago in enumerate(ended_ago)]
    for job_id, at in finished:
        line.call("ZADD", store.keys["completed"], at, job_id)
        line.call("HSET", store.keys.job(job_id), "id", job_id)

    while line.ask(store.trim(JobState.COMPLETED, keep, most=7)):
        pass

    left = [raw.decode() for raw in line.call("ZRANGE", store.keys["completed"], 0, -1)]
    jobs = sum(line.call("EXISTS", store.keys.job(job_id)) for job_id, _ in finished)
    line.ask(store.obliterate(most=1_000, force=True))
    line.close()
    assert left == survivors(finished, keep, now)
    assert jobs == len(left)
