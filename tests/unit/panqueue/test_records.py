"""Job hashes as records, and the table of transitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queueyard.panqueue.records import TRANSITIONS, JobState, record_from


@given(st.dictionaries(st.binary(max_size=12), st.binary(max_size=12)))
def test_any_hash_is_some_record(fields: dict[bytes, bytes]) -> None:
    record = record_from("j", [word for pair in fields.items() for word in pair])

    assert record.id == "j"


def test_numbers_are_numbers_and_odd_ones_are_missing() -> None:
    flat = [b"runs", b"3", b"failures", b"many", b"createdAt", b"17", b"own", b"kept as it is", b"payload", b"{}"]

    record = record_from("j", flat)

    assert (record.runs, record.failures, record.created_at, record.payload) == (3, 0, 17, "{}")


def test_every_state_has_its_row_and_leads_to_known_states() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert {after for row in TRANSITIONS.values() for after in row} <= set(JobState)
    assert TRANSITIONS[JobState.COMPLETED] == frozenset()
