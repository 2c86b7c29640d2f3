"""The algorithm of the spec: planning, replies, keys, and what becomes of an op."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as some
import pytest

from queueyard.ops.records import Op, OpType, PushRequest, Status
from queueyard.ops.rules import (
    BatchVerdict,
    FileState,
    KnownBatch,
    Next,
    after_reply,
    chunk,
    coalesce,
    content_hash,
    fingerprint,
    halves,
    judge_batch,
    judge_delete,
    judge_upsert,
    queue_key,
    sending_order,
    wait_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def op(file_id: str = "F1", *, op_id: str = "1", delete: bool = False, base: int = 0, path: str = "a.md") -> Op:
    content = None if delete else "text"
    return Op(
        op_id=op_id,
        type=OpType.DELETE if delete else OpType.UPSERT,
        file_id=file_id,
        server_path=path,
        base_version=base,
        content=content,
    )


ops = some.builds(
    op,
    some.sampled_from(["F1", "F2", "F3", "F4"]),
    op_id=some.uuids().map(str),
    delete=some.booleans(),
    base=some.integers(0, 5),
)


class TestPlanning:
    @given(some.lists(some.integers(0, 500)), some.integers(1, 20), some.integers(1, 1000))
    def test_batches_hold_every_op_once_in_order_and_respect_both_limits(
        self, sizes: list[int], max_ops: int, max_bytes: int
    ) -> None:
        batches = chunk(sizes, max_ops=max_ops, max_bytes=max_bytes)

        assert [place for batch in batches for place in batch] == list(range(len(sizes)))
        for batch in batches:
            assert 1 <= len(batch) <= max_ops
            assert len(batch) == 1 or sum(sizes[place] for place in batch) <= max_bytes

    @given(some.lists(some.integers(0, 500), min_size=1), some.integers(1, 20), some.integers(1, 1000))
    def test_no_two_neighbours_would_fit_into_one_batch(self, sizes: list[int], max_ops: int, max_bytes: int) -> None:
        batches = chunk(sizes, max_ops=max_ops, max_bytes=max_bytes)

        for first, second in pairwise(batches):
            joined = [*first, second[0]]
            assert len(joined) > max_ops or sum(sizes[place] for place in joined) > max_bytes

    @given(some.lists(ops))
    def test_coalescing_leaves_the_last_wish_for_each_file_on_the_first_base(self, wanted: list[Op]) -> None:
        left = coalesce(wanted)

        assert [one.file_id for one in left] == list(dict.fromkeys(one.file_id for one in wanted))
        for one in left:
            of_file = [asked for asked in wanted if asked.file_id == one.file_id]
            assert (one.op_id, one.type) == (of_file[-1].op_id, of_file[-1].type)
            assert one.base_version == of_file[0].base_version

    def test_deletes_go_before_changes_and_changes_before_new_files(self) -> None:
        wanted = [op("new"), op("changed", base=3), op("gone", delete=True, base=2)]

        assert [one.file_id for one in sorted(wanted, key=sending_order)] == ["gone", "changed", "new"]

    @given(some.lists(ops, min_size=2))
    def test_halves_are_both_smaller_and_hold_everything_in_order(self, batch: Sequence[Op]) -> None:
        first, second = halves(batch)

        assert [*first, *second] == list(batch)
        assert 0 < len(second) <= len(first) < len(batch)

    def test_one_op_cannot_be_halved(self) -> None:
        with pytest.raises(ValueError, match="one op"):
            halves([op()])

    def test_what_was_split_out_goes_before_the_rest_of_its_request_and_behind_the_one_before(self) -> None:
        orders = [[2], [2, 7], [1], [2, 7, 1], [10]]

        assert sorted(orders, key=queue_key) == [[1], [2, 7, 1], [2, 7], [2], [10]]


class TestReplies:
    @pytest.mark.parametrize(
        ("status", "code", "meant"),
        [
            (200, None, Next.ANSWERED),
            (408, "body_timeout", Next.RETRY),
            (425, None, Next.RETRY),
            (429, "rate_limited", Next.RETRY),
            (500, "internal", Next.RETRY),
            (502, None, Next.RETRY),
            (503, "overloaded", Next.RETRY),
            (409, "in_progress", Next.RETRY),
            (409, "out_of_order", Next.OUT_OF_ORDER),
            (410, "expired", Next.GONE),
            (400, "malformed_json", Next.SPLIT),
            (413, "body_too_large", Next.SPLIT),
            (422, "invalid_request", Next.SPLIT),
            (422, "idempotency_key_reused", Next.BURY),
            (422, "total_batches_changed", Next.BURY),
            (401, "token_invalid", Next.STOP),
            (403, "scope_missing", Next.STOP),
            (404, "unknown_space", Next.STOP),
            (301, None, Next.STOP),
        ],
    )
    def test_each_status_has_one_meaning(self, status: int, code: str | None, meant: Next) -> None:
        assert after_reply(status, code) is meant

    @given(some.integers(100, 599), some.none() | some.text(max_size=5))
    def test_no_4xx_is_retried_but_the_four_that_may_pass(self, status: int, code: str | None) -> None:
        if 400 <= status < 500 and status not in {408, 425, 429} and code != "in_progress":
            assert after_reply(status, code) is not Next.RETRY

    @given(some.integers(1, 60), some.floats(0, 1, exclude_max=True))
    def test_the_wait_is_left_to_chance_between_nothing_and_the_cap(self, attempt: int, roll: float) -> None:
        assert 0 <= wait_ms(attempt, None, lambda: roll) <= min(30_000, 200 * 2 ** (attempt - 1))

    @given(some.integers(1, 60), some.floats(0, 1, exclude_max=True), some.floats(0, 600))
    def test_the_wait_is_never_shorter_than_the_server_asked_for(
        self, attempt: int, roll: float, asked_s: float
    ) -> None:
        assert wait_ms(attempt, asked_s, lambda: roll) >= asked_s * 1000


def batch(*wanted: Op, request_id: str = "R", index: int = 1, total: int = 2) -> PushRequest:
    return PushRequest(request_id=request_id, batch_index=index, total_batches=total, ops=list(wanted))


def digest(request: PushRequest) -> bytes:
    hashes = [None if one.content is None else content_hash(one.content) for one in request.ops]
    return fingerprint(request, hashes)


class TestTheKey:
    def test_the_fingerprint_depends_on_the_order_of_ops(self) -> None:
        first, second = op("F1", op_id="1"), op("F2", op_id="2", path="b.md")

        assert digest(batch(first, second)) != digest(batch(second, first))

    @pytest.mark.parametrize(
        "other",
        [
            batch(op(), request_id="R2"),
            batch(op(), index=2),
            batch(op(), total=3),
            batch(op(op_id="9")),
            batch(op("F9")),
            batch(op(path="b.md")),
            batch(op(base=1)),
            batch(op(delete=True)),
            batch(op(), op(op_id="2")),
            batch(),
        ],
    )
    def test_every_part_of_the_payload_counts(self, other: PushRequest) -> None:
        assert digest(batch(op())) != digest(other)

    def test_the_time_and_the_message_do_not_count(self) -> None:
        request = batch(op())
        told = PushRequest(request_id="R", batch_index=1, total_batches=2, ops=request.ops, created_at=5, message="why")

        assert digest(request) == digest(told)

    @pytest.mark.parametrize(
        ("index", "total", "same", "known_total", "done", "known", "verdict"),
        [
            (1, 2, True, None, 0, None, BatchVerdict.APPLY),
            (2, 2, True, 2, 1, None, BatchVerdict.APPLY),
            (2, 2, True, None, 0, None, BatchVerdict.OUT_OF_ORDER),
            (3, 3, True, 3, 1, None, BatchVerdict.OUT_OF_ORDER),
            (1, 2, True, 2, 1, "kept", BatchVerdict.REPLAY),
            (1, 2, True, 2, 2, "kept", BatchVerdict.REPLAY),
            (1, 2, True, 2, 1, "gone", BatchVerdict.EXPIRED),
            (1, 2, False, 2, 1, "kept", BatchVerdict.KEY_REUSED),
            (1, 2, False, 2, 1, "gone", BatchVerdict.KEY_REUSED),
            (1, 3, False, 2, 1, "kept", BatchVerdict.TOTAL_CHANGED),
            (2, 3, True, 2, 1, None, BatchVerdict.TOTAL_CHANGED),
        ],
    )
    def test_the_decision_table(
        self,
        index: int,
        total: int,
        same: bool,
        known_total: int | None,
        done: int,
        known: str | None,
        verdict: BatchVerdict,
    ) -> None:
        remembered = None
        if known is not None:
            remembered = KnownBatch(fingerprint=b"same" if same else b"other", answer_is_kept=known == "kept")

        judged = judge_batch(
            index=index, total=total, digest=b"same", known_total=known_total, done=done, known=remembered
        )

        assert judged is verdict


def state(version: int, *, deleted: bool = False, path: str = "a.md", text: str = "old") -> FileState:
    return FileState(file_id="F1", path=path, version=version, deleted=deleted, content_hash=content_hash(text))


NEW = content_hash("text")


class TestUpserts:
    def test_a_new_file_starts_at_version_1(self) -> None:
        verdict = judge_upsert(op(), "a.md", NEW, None, None)

        assert (verdict.result.status, verdict.result.new_version) == (Status.APPLIED, 1)
        assert verdict.after == state(1, text="text")

    def test_the_version_it_was_made_on_counts_on(self) -> None:
        verdict = judge_upsert(op(base=4), "b.md", NEW, state(4), None)

        assert verdict.result.new_version == 5
        assert verdict.after == state(5, path="b.md", text="text")

    @given(some.integers(0, 9), some.integers(1, 9))
    def test_any_other_version_is_a_conflict_that_tells_what_the_server_has(self, base: int, version: int) -> None:
        verdict = judge_upsert(op(base=base), "a.md", NEW, state(version), None)

        if base != version:
            assert (verdict.result.status, verdict.after) == (Status.CONFLICT, None)
            assert (verdict.result.server_version, verdict.result.server_hash) == (version, content_hash("old"))
        else:
            assert verdict.result.status is Status.APPLIED

    def test_a_file_that_the_server_never_had_is_a_conflict_with_version_0(self) -> None:
        result = judge_upsert(op(base=2), "a.md", NEW, None, None).result

        assert (result.status, result.server_version, result.server_hash) == (Status.CONFLICT, 0, None)

    @pytest.mark.parametrize("base", [6, 7])
    def test_what_is_there_already_is_applied_and_unchanged(self, base: int) -> None:
        verdict = judge_upsert(op(base=base), "a.md", NEW, state(7, text="text"), None)

        assert (verdict.result.new_version, verdict.result.unchanged, verdict.after) == (7, True, None)

    @pytest.mark.parametrize("base", [5, 8])
    def test_the_same_text_on_an_older_or_unknown_version_is_still_a_conflict(self, base: int) -> None:
        assert judge_upsert(op(base=base), "a.md", NEW, state(7, text="text"), None).result.status is Status.CONFLICT

    def test_over_its_tombstone_a_file_is_restored_with_the_next_version(self) -> None:
        verdict = judge_upsert(op(base=3), "a.md", NEW, state(3, deleted=True, text="text"), None)

        assert verdict.after == state(4, text="text")

    @pytest.mark.parametrize("base", [0, 2])
    def test_who_did_not_know_of_the_delete_meets_a_conflict(self, base: int) -> None:
        result = judge_upsert(op(base=base), "a.md", NEW, state(3, deleted=True), None).result

        assert (result.status, result.server_deleted, result.server_hash) == (Status.CONFLICT, True, None)

    def test_a_path_that_another_file_has_is_a_conflict_that_names_it(self) -> None:
        holder = FileState(file_id="F9", path="A.md", version=4, deleted=False, content_hash="h")

        result = judge_upsert(op(), "a.md", NEW, None, holder).result

        assert (result.status, result.code) == (Status.CONFLICT, "path_taken")
        assert (result.server_file_id, result.server_version, result.server_hash) == ("F9", 4, "h")


class TestDeletes:
    def test_the_file_becomes_a_tombstone_with_the_next_version(self) -> None:
        verdict = judge_delete(op(delete=True, base=3), state(3))

        assert verdict.result.new_version == 4
        assert verdict.after == state(4, deleted=True)

    @pytest.mark.parametrize("current", [None, state(3, deleted=True)])
    @pytest.mark.parametrize("base", [0, 3, 9])
    def test_what_is_gone_is_deleted_already(self, current: FileState | None, base: int) -> None:
        verdict = judge_delete(op(delete=True, base=base), current)

        assert (verdict.result.status, verdict.result.unchanged, verdict.after) == (Status.APPLIED, True, None)

    def test_an_edit_in_between_is_not_deleted(self) -> None:
        result = judge_delete(op(delete=True, base=3), state(4)).result

        assert (result.status, result.server_version, result.server_hash) == (
            Status.CONFLICT,
            4,
            content_hash("old"),
        )
