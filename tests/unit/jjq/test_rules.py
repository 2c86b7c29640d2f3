"""Names, ids, bookmarks, and what a crash leaves: jjq's pure decisions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.jjq.errors import BadId, ConflictedBookmark, CorruptMetadata, IdsExhausted, TrunkTrouble
from queueyard.jjq.records import Bookmark, Commit, Item, Landing, LockName, Merge, Queue, Requeue, Scope, Workspace
from queueyard.jjq.rules import (
    Leftovers,
    candidate_of,
    item_bookmark,
    landable,
    merge_message,
    next_id,
    parse_id,
    parse_last_id,
    read_queue,
    repair,
    run_workspace,
    trailer,
    trunk_of,
    what_changed,
    workspace_item,
)


def commit(name: str, *parents: str, description: str = "") -> Commit:
    return Commit(commit_id=name, change_id=f"change-of-{name}", parents=parents, description=description)


def bookmark(name: str, *targets: str) -> Bookmark:
    return Bookmark(name=name, targets=tuple(commit(target, "root") for target in targets))


def item(number: int, name: str = "c", *, conflicted: bool = False) -> Item:
    return Item(id=number, commit=commit(name, "root"), conflicted=conflicted)


class TestIds:
    @given(st.integers(1, 999_999), st.integers(0, 4))
    def test_every_id_is_read_with_any_number_of_zeros_before_it(self, number: int, zeros: int) -> None:
        assert parse_id("0" * zeros + str(number)) == number

    @given(st.text())
    def test_any_other_text_is_refused(self, text: str) -> None:
        is_id = text.isascii() and text.isdigit() and 1 <= int(text) <= 999_999
        if is_id:
            return

        with pytest.raises(BadId):
            parse_id(text)

    @given(st.integers(1, 999_999))
    def test_names_hold_six_digits_and_are_read_back(self, number: int) -> None:
        name = item_bookmark(Scope.QUEUE, number)

        assert len(name) == len("jjq/queue/") + 6
        assert read_queue([bookmark(name, "c")]).queued[0].id == number
        assert workspace_item(run_workspace(number)) == number

    @pytest.mark.parametrize("raw", [b"0", b"41", b" 41\n", b"999999"])
    def test_a_counter_is_a_number_with_blanks_around_it(self, raw: bytes) -> None:
        assert parse_last_id(raw) == int(raw)

    @pytest.mark.parametrize("raw", [None, b"", b"x", b"-1", b"1000000", b"1 2", "٣".encode()])
    def test_anything_else_is_corrupt(self, raw: bytes | None) -> None:
        with pytest.raises(CorruptMetadata):
            parse_last_id(raw)

    def test_the_next_id_is_above_the_counter_and_above_what_is_in_use(self) -> None:
        assert next_id(0) == 1
        assert next_id(3, Queue(queued=(item(7),), failed=(item(9),))) == 10
        with pytest.raises(IdsExhausted):
            next_id(999_999)


class TestBookmarks:
    def test_items_are_sorted_as_the_spec_says(self) -> None:
        names = ["jjq/queue/000003", "jjq/failed/000002", "jjq/queue/000001", "jjq/failed/000005"]

        queue = read_queue([bookmark(name, "c") for name in names])

        assert [one.id for one in queue.queued] == [1, 3]
        assert [one.id for one in queue.failed] == [5, 2]

    def test_each_bookmark_finds_its_place(self) -> None:
        queue = read_queue(
            [
                bookmark("jjq/_/_", "m"),
                bookmark("jjq/lock/run", "m"),
                bookmark("jjq/lock/other", "m"),
                bookmark("jjq/run/000001", "m"),
                bookmark("jjq/queue/000000", "m"),
                bookmark("trunk", "t"),
            ],
            trunk="trunk",
        )

        assert queue.metadata == bookmark("jjq/_/_", "m")
        assert queue.locks == {"run"}
        assert queue.trunk == bookmark("trunk", "t")
        assert queue.strangers == ("jjq/lock/other", "jjq/queue/000000")

    def test_a_conflicted_item_is_told_and_cannot_land(self) -> None:
        queue = read_queue([bookmark("jjq/queue/000001", "a", "b")])

        assert queue.queued[0].conflicted
        with pytest.raises(ConflictedBookmark, match="item 1"):
            landable(queue.queued[0])

    @pytest.mark.parametrize(
        ("trunk", "words"),
        [
            (None, "there is no bookmark"),
            (bookmark("main", "a", "b"), "is conflicted"),
            (Bookmark(name="main", targets=(commit("root"),)), "root revision"),
        ],
    )
    def test_a_trunk_that_nothing_can_land_on_is_refused(self, trunk: Bookmark | None, words: str) -> None:
        with pytest.raises(TrunkTrouble, match=words):
            trunk_of(Queue(trunk=trunk), "main")

    def test_a_sound_trunk_is_its_revision(self) -> None:
        assert trunk_of(Queue(trunk=bookmark("main", "t")), "main").commit_id == "t"


class TestMerges:
    def test_the_description_carries_what_tools_look_for(self) -> None:
        text = merge_message(7, commit("c", description="Add a button\n\nwith text\n"), commit("t"))

        merge = commit("m", "t", "c", description=text)
        assert merge.subject == "merge 7: Add a button"
        assert trailer(merge, "jjq-sequence") == "7"
        assert trailer(merge, "jjq-candidate") == "change-of-c"
        assert trailer(merge, "jjq-candidate-commit") == "c"
        assert trailer(merge, "jjq-trunk") == "t"
        assert trailer(merge, "jjq-nothing") is None

    def test_the_candidate_of_a_failed_item_is_its_second_parent_or_else_in_its_trailer(self) -> None:
        merged = Item(id=1, commit=commit("m", "t", "c"))
        rebased = Item(id=1, commit=commit("m", "t", description="Failed\n\njjq-candidate: xyz\n"))

        assert candidate_of(merged) == "c"
        assert candidate_of(rebased) == "xyz"
        assert candidate_of(Item(id=1, commit=commit("m", "t"))) is None

    def test_a_merge_may_land_only_while_everything_is_as_it_was_checked(self) -> None:
        merge = Merge(id=1, base=commit("t"), candidate=commit("c"), commit=commit("m", "t", "c"))
        at_trunk = bookmark("main", "t")

        assert what_changed(merge, Queue(queued=(item(1),), trunk=at_trunk), trunk="t") is None
        gone = what_changed(merge, Queue(trunk=at_trunk), trunk="t")
        changed = what_changed(merge, Queue(queued=(item(1, "d"),), trunk=at_trunk), trunk="t")
        moved = what_changed(merge, Queue(queued=(item(1),), trunk=bookmark("main", "u")), trunk="t")
        torn = what_changed(merge, Queue(queued=(item(1),), trunk=bookmark("main", "t", "u")), trunk="t")
        lost = what_changed(merge, Queue(queued=(item(1),)), trunk="t")
        unclear = what_changed(merge, Queue(queued=(item(1, conflicted=True),), trunk=at_trunk), trunk="t")

        assert gone == "item 1 was taken out of the queue"
        assert changed == unclear == "item 1 was changed"
        assert moved == torn == lost == "trunk was moved"


def workspace(name: str) -> Workspace:
    return Workspace(name=name, path=f"/tmp/{name}/work", pid=1, started="x", change_id=f"change-of-{name}")


ids = st.sets(st.integers(1, 6)).map(sorted)


class TestRepair:
    def test_a_landing_whose_trunk_has_moved_is_finished(self) -> None:
        landing = Landing(ids=(1,), merge=commit("m"), trunk_bookmark="main")
        left = Leftovers(landing=landing, landed=True, run=True, queue=Queue(queued=(item(1), item(2))))

        done = repair(left)

        assert done.bookmarks == ("jjq/queue/000001",)
        assert done.landed == (1,)

    def test_a_landing_whose_trunk_has_not_moved_is_undone(self) -> None:
        landing = Landing(ids=(1,), merge=commit("m"), trunk_bookmark="main")
        left = Leftovers(
            landing=landing, run=True, workspaces=(workspace("jjq/run/000001"),), queue=Queue(queued=(item(1),))
        )

        done = repair(left)

        assert done.bookmarks == ()
        assert done.workspaces == (workspace("jjq/run/000001"),)
        assert done.sweep
        assert done.stalled == (1,)

    def test_a_failure_whose_bookmark_exists_is_finished(self) -> None:
        left = Leftovers(run=True, queue=Queue(queued=(item(1), item(2)), failed=(item(1),)))

        assert repair(left).bookmarks == ("jjq/queue/000001",)

    def test_the_workspace_of_a_failure_that_was_written_down_is_kept(self) -> None:
        left = Leftovers(run=True, workspaces=(workspace("jjq/run/000001"),), queue=Queue(failed=(item(1),)))

        done = repair(left)

        assert done.workspaces == ()
        assert done.kept == (workspace("jjq/run/000001"),)

    def test_a_requeue_is_finished_if_its_new_bookmark_exists_and_forgotten_otherwise(self) -> None:
        requeue = Requeue(failed_id=1, queue_id=2)

        half = repair(Leftovers(requeue=requeue, queue=Queue(queued=(item(2),), failed=(item(1),))))
        nothing = repair(Leftovers(requeue=requeue, queue=Queue(failed=(item(1),))))

        assert half.bookmarks == ("jjq/failed/000001",)
        assert nothing.bookmarks == ()

    def test_a_lock_is_removed_only_if_its_bookmark_is_there(self) -> None:
        left = Leftovers(locks=(LockName.ID, LockName.CONFIG), queue=Queue(locks=frozenset({"id"})))

        done = repair(left)

        assert done.bookmarks == ("jjq/lock/id",)
        assert len(done.notes) == 1

    @given(queued=ids, failed=ids, landing=ids, landed=st.booleans(), run=st.booleans())
    def test_no_item_is_lost_and_doing_it_twice_does_no_harm(
        self, queued: list[int], failed: list[int], landing: list[int], landed: bool, run: bool
    ) -> None:
        queue = Queue(queued=tuple(map(item, queued)), failed=tuple(map(item, failed)))
        note = Landing(ids=tuple(landing), merge=commit("m"), trunk_bookmark="main") if landing else None
        left = Leftovers(landing=note, landed=landed and note is not None, run=run, queue=queue)

        done = repair(left)
        kept = Queue(
            queued=tuple(one for one in queue.queued if item_bookmark(Scope.QUEUE, one.id) not in done.bookmarks),
            failed=tuple(one for one in queue.failed if item_bookmark(Scope.FAILED, one.id) not in done.bookmarks),
        )
        again = repair(Leftovers(landing=note, landed=landed and note is not None, run=run, queue=kept))

        gone = {one.id for one in queue.queued} - {one.id for one in kept.queued}
        assert kept.failed == queue.failed
        assert gone <= {*failed, *(landing if landed else [])}
        assert again.bookmarks == ()
