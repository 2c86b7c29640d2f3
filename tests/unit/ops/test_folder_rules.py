"""Which ops a scan makes, and what a pulled change does to the folder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some
import msgspec
import pytest

from queueyard.ops.folder_rules import (
    Local,
    Pull,
    Shelf,
    acknowledge,
    deletes_too_much,
    drafts,
    expected,
    is_echo,
    judge_pull,
)
from queueyard.ops.records import NotedOp, OpResult, OpType, PulledFile, Status, Tracked


def tracked(path: str, text: str, *, file_id: str | None = None, version: int = 1) -> Tracked:
    return Tracked(file_id=file_id or f"id-{path}", server_path=path, version=version, content_hash=text)


def by_path(*known: Tracked) -> dict[str, Tracked]:
    return {one.server_path: one for one in known}


def local(text: str) -> Local:
    return Local(content_hash=text, encoded_bytes=len(text))


paths = some.sampled_from(["a", "b", "c/d", "c/e", "f"])
contents = some.sampled_from(["one", "two", "three"])
folders = some.dictionaries(paths, contents)


class TestDrafts:
    @given(folders, folders)
    def test_applying_them_makes_the_server_have_what_the_folder_has(
        self, server: dict[str, str], folder: dict[str, str]
    ) -> None:
        known = by_path(*(tracked(path, text, version=3) for path, text in server.items()))

        planned = drafts(known, {path: local(text) for path, text in folder.items()})

        shelf = Shelf(known)
        for number, draft in enumerate(planned):
            file_id = draft.file_id or f"new{number}"
            before = shelf.get(file_id)
            assert draft.base_version == (before.version if before else 0)
            if draft.type is OpType.DELETE:
                shelf.forget(file_id)
            else:
                assert draft.server_path not in shelf.by_path or shelf.by_path[draft.server_path].file_id == file_id
                shelf.put(tracked(draft.server_path, draft.content_hash or "", file_id=file_id))
        assert {path: one.content_hash for path, one in shelf.by_path.items()} == folder

    @given(folders)
    def test_nothing_is_planned_for_what_is_the_same(self, folder: dict[str, str]) -> None:
        known = by_path(*(tracked(path, text) for path, text in folder.items()))

        assert drafts(known, {path: local(text) for path, text in folder.items()}) == []

    @given(folders, folders)
    def test_each_file_occurs_once(self, server: dict[str, str], folder: dict[str, str]) -> None:
        known = by_path(*(tracked(path, text) for path, text in server.items()))

        planned = drafts(known, {path: local(text) for path, text in folder.items()})

        ids = [draft.file_id for draft in planned if draft.file_id]
        assert len(ids) == len(set(ids))

    def test_a_file_that_moved_keeps_its_id(self) -> None:
        [draft] = drafts(by_path(tracked("a", "text", file_id="F1", version=4)), {"b": local("text")})

        assert (draft.type, draft.file_id, draft.server_path, draft.base_version) == (OpType.UPSERT, "F1", "b", 4)

    def test_two_equal_files_are_not_taken_for_a_move(self) -> None:
        planned = drafts(by_path(tracked("a", "text")), {"b": local("text"), "c": local("text")})

        assert [(draft.type, draft.server_path) for draft in planned] == [
            (OpType.DELETE, "a"),
            (OpType.UPSERT, "b"),
            (OpType.UPSERT, "c"),
        ]


def noted(
    path: str, text: str | None, *, file_id: str = "F1", base: int = 0, status: Status | None = None, version: int = 1
) -> NotedOp:
    result = None if status is None else OpResult(op_id="1", file_id=file_id, status=status, new_version=version)
    return NotedOp(
        op_id="1",
        type=OpType.UPSERT if text else OpType.DELETE,
        file_id=file_id,
        server_path=path,
        base_version=base,
        content_hash=text,
        result=result,
    )


def acknowledged(known: dict[str, Tracked], answers: list[NotedOp]) -> dict[str, Tracked]:
    shelf = Shelf(known)
    for answer in answers:
        acknowledge(shelf, answer)
    return shelf.by_path


VERSIONS = some.integers(1, 9)


class TestWhatIsKnown:
    def test_a_scan_is_compared_with_what_the_queue_will_make(self) -> None:
        known = by_path(tracked("a", "old", file_id="F1", version=3), tracked("b", "text", file_id="F2"))

        then = expected(known, [noted("c", "new", base=3), noted("b", None, file_id="F2")])

        assert then == by_path(tracked("c", "new", file_id="F1", version=4))

    @given(
        some.lists(some.builds(noted, paths, contents, status=some.just(Status.APPLIED), version=some.integers(1, 9)))
    )
    def test_taking_the_same_answers_twice_changes_nothing(self, answers: list[NotedOp]) -> None:
        once = acknowledged({}, answers)

        assert acknowledged(once, answers) == once

    @pytest.mark.parametrize("status", [Status.CONFLICT, Status.REJECTED, None])
    def test_only_what_was_applied_is_known(self, status: Status | None) -> None:
        known = by_path(tracked("a", "old", file_id="F1"))

        assert acknowledged(known, [noted("a", "new", status=status)]) == known

    def test_something_newer_that_was_pulled_meanwhile_stays(self) -> None:
        known = by_path(tracked("a", "newer", file_id="F1", version=9))

        assert acknowledged(known, [noted("a", "new", status=Status.APPLIED, version=5)]) == known

    @pytest.mark.parametrize(("deletes", "files", "too_much"), [(9, 9, False), (10, 12, True), (10, 30, False)])
    def test_many_deletes_at_once_are_suspicious(self, deletes: int, files: int, too_much: bool) -> None:
        assert deletes_too_much(deletes, files) == too_much


def change(*, version: int = 2, path: str = "a", deleted: bool = False, text: str = "theirs") -> PulledFile:
    return PulledFile(
        file_id="F1",
        server_path=path,
        version=version,
        deleted=deleted,
        content=msgspec.UNSET if deleted else text,
        content_hash=msgspec.UNSET if deleted else text,
    )


KNOWN = tracked("a", "base", file_id="F1", version=1)


class TestPulling:
    @pytest.mark.parametrize(
        ("pulled", "known", "here", "there", "verdict"),
        [
            (change(version=1), KNOWN, "base", "base", Pull.IGNORE),
            (change(), KNOWN, "base", "base", Pull.WRITE),
            (change(), KNOWN, "theirs", "theirs", Pull.ADOPT),
            (change(), KNOWN, "mine", "mine", Pull.CONFLICT),
            (change(), KNOWN, None, None, Pull.WRITE),
            (change(deleted=True), KNOWN, "base", "base", Pull.REMOVE),
            (change(deleted=True), KNOWN, None, None, Pull.REMOVE),
            (change(deleted=True), KNOWN, "mine", "mine", Pull.CONFLICT),
            (change(deleted=True), None, None, "mine", Pull.IGNORE),
            (change(path="b"), KNOWN, "base", None, Pull.MOVE),
            (change(path="b"), KNOWN, "base", "theirs", Pull.MOVE),
            (change(path="b"), KNOWN, "base", "mine", Pull.CONFLICT),
            (change(path="b"), KNOWN, "mine", None, Pull.CONFLICT),
            (change(path="b"), KNOWN, "mine", "theirs", Pull.CONFLICT),
            (change(), None, None, None, Pull.WRITE),
            (change(), None, None, "theirs", Pull.ADOPT),
            (change(), None, None, "mine", Pull.CONFLICT),
        ],
    )
    def test_the_decision_table(
        self, pulled: PulledFile, known: Tracked | None, here: str | None, there: str | None, verdict: Pull
    ) -> None:
        assert judge_pull(pulled, known, here, there) is verdict

    @given(
        some.builds(change, version=some.integers(1, 3), path=some.sampled_from("ab"), deleted=some.booleans()),
        some.none() | some.just(KNOWN),
        some.sampled_from([None, "base", "mine", "theirs"]),
        some.sampled_from([None, "base", "mine", "theirs"]),
    )
    def test_a_text_that_the_server_never_had_is_never_overwritten_or_removed(
        self, pulled: PulledFile, known: Tracked | None, here: str | None, there: str | None
    ) -> None:
        if known is not None and known.server_path == pulled.server_path:
            there = here

        verdict = judge_pull(pulled, known, here, there)

        overwritten = {there} if verdict in {Pull.WRITE, Pull.MOVE} else set()
        removed = {here} if verdict in {Pull.MOVE, Pull.REMOVE} else set()
        assert "mine" not in overwritten | removed

    @pytest.mark.parametrize(
        ("pulled", "own", "echo"),
        [
            (("a", "new", 4), ("a", "new", 3), True),
            (("a", None, 4), ("a", None, 3), True),
            (("a", "new", 5), ("a", "new", 3), False),
            (("b", "new", 4), ("a", "new", 3), False),
            (("a", "theirs", 4), ("a", "new", 3), False),
            (("a", None, 4), ("a", "new", 3), False),
            (("a", "new", 4), ("a", None, 3), False),
        ],
    )
    def test_only_what_our_own_op_must_have_made_is_its_echo(
        self, pulled: tuple[str, str | None, int], own: tuple[str, str | None, int], echo: bool
    ) -> None:
        path, text, version = pulled
        arrived = change(path=path, text=text or "", deleted=text is None, version=version)

        assert is_echo(arrived, noted(own[0], own[1], base=own[2])) is echo
