"""Two people and one space, through the script: what comes, what stays, and who decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.ops.support.proxy import FaultyProxy
from unit.ops.support.running import RunningServer, ScriptClient, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as server:
        yield server


class Pair:
    """Ana and Ben, each with a folder of the same space."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        space = server.new_space()
        self.ana = ScriptClient(folder / "ana", server.url, space)
        self.ben = ScriptClient(folder / "ben", server.url, space)

    def share(self, **files: str) -> None:
        """Files that both have."""
        for name, text in files.items():
            self.ana.write(f"{name}.md", text)
        self.ana.json("push")
        self.ben.json("pull")


@pytest.fixture
def pair(server: RunningServer, tmp_path: Path) -> Pair:
    return Pair(server, tmp_path)


def names(client: ScriptClient) -> list[str]:
    return sorted(str(path.relative_to(client.workspace)) for path in client.workspace.rglob("*") if path.is_file())


def text(client: ScriptClient, path: str) -> str:
    return (client.workspace / path).read_text()


class TestComing:
    def test_new_changed_moved_and_deleted_files_arrive(self, pair: Pair) -> None:
        pair.share(stays="same", changes="old", moves="unique text", goes="bye")
        pair.ana.write("changes.md", "new")
        (pair.ana.workspace / "moves.md").rename(pair.ana.workspace / "moved.md")
        (pair.ana.workspace / "goes.md").unlink()
        pair.ana.write("deep/down/new.md", "hello")
        pair.ana.json("push")

        pulled = pair.ben.json("pull")

        assert names(pair.ben) == ["changes.md", "deep/down/new.md", "moved.md", "stays.md"]
        assert text(pair.ben, "changes.md") == "new"
        assert (pulled["moved"], pulled["removed"], pulled["conflicts"]) == (["moves.md"], ["goes.md"], [])
        assert pair.ben.json("push")["batches"] == 0

    def test_what_one_pushed_oneself_is_no_news(self, pair: Pair) -> None:
        pair.ana.write("a.md", "text")
        pair.ana.json("push")

        pulled = pair.ana.json("pull")

        assert (pulled["written"], pulled["cursor"]) == ([], 1)

    def test_everything_from_the_beginning_tells_of_deletes_too(self, pair: Pair) -> None:
        pair.share(stays="same", goes="bye")
        (pair.ana.workspace / "goes.md").unlink()
        pair.ana.json("push")

        pulled = pair.ben.json("pull", "--all")

        assert (pulled["removed"], names(pair.ben)) == (["goes.md"], ["stays.md"])

    def test_ones_own_change_whose_answer_was_lost_is_no_news_either(
        self, server: RunningServer, tmp_path: Path
    ) -> None:
        with FaultyProxy(server.url, ["swallow"]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, server.new_space())
            client.write("a.md", "first")
            pushing = client.start("push")
            assert proxy.held.wait(30)
            pushing.kill()
            pushing.communicate()
            client.write("a.md", "second")

            pulled = client.json("pull")
            pushed = client.json("push")

        assert (pulled["conflicts"], names(client), text(client, "a.md")) == ([], ["a.md"], "second")
        assert (pushed["applied"], pushed["conflicts"]) == (2, 0)

    def test_a_push_does_not_hide_what_others_wrote_before_it(self, pair: Pair) -> None:
        """The cursor of a push's answer is not one to pull from."""
        pair.share(a="text")
        pair.ana.write("from_ana.md", "x")
        pair.ana.json("push")
        pair.ben.write("from_ben.md", "y")
        pair.ben.json("push")

        assert pair.ben.json("pull")["written"] == ["from_ana.md"]

    def test_a_file_that_is_the_same_on_both_sides_is_taken_as_it_is(self, pair: Pair) -> None:
        pair.ana.write("a.md", "the same")
        pair.ben.write("a.md", "the same")
        pair.ana.json("push")

        pulled = pair.ben.json("pull")

        assert (pulled["written"], pulled["conflicts"]) == ([], [])
        assert pair.ben.json("push")["batches"] == 0

    def test_a_file_that_is_missing_here_and_changed_there_comes_back(self, pair: Pair) -> None:
        pair.share(a="old")
        (pair.ben.workspace / "a.md").unlink()
        pair.ana.write("a.md", "new")
        pair.ana.json("push")

        pair.ben.json("pull")

        assert text(pair.ben, "a.md") == "new"

    def test_files_that_change_places_arrive_in_whatever_order(self, pair: Pair) -> None:
        pair.share(a="text of a", b="text of b")
        (pair.ana.workspace / "a.md").rename(pair.ana.workspace / "c.md")
        pair.ana.json("push")
        (pair.ana.workspace / "b.md").rename(pair.ana.workspace / "a.md")
        pair.ana.json("push")
        pair.ana.write("c.md", "text of a, changed")
        pair.ana.json("push")

        pulled = pair.ben.json("pull")

        assert pulled["conflicts"] == []
        assert (names(pair.ben), text(pair.ben, "a.md")) == (["a.md", "c.md"], "text of b")

    def test_a_file_that_one_deleted_oneself_is_not_brought_back(self, pair: Pair) -> None:
        pair.share(a="text")
        (pair.ben.workspace / "a.md").unlink()

        assert pair.ben.json("pull")["written"] == []
        assert pair.ben.json("pull", "--all")["written"] == []

    def test_a_folder_in_the_way_is_told_and_the_rest_arrives(self, pair: Pair) -> None:
        (pair.ben.workspace / "a.md").mkdir()
        pair.ana.write("a.md", "text")
        pair.ana.write("b.md", "text")
        pair.ana.json("push")

        answer = pair.ben.run("pull", "--json")
        (pair.ben.workspace / "a.md").rmdir()
        later = pair.ben.json("pull", "--all")

        assert (answer.code, list(answer.json["skipped"]), answer.json["written"]) == (3, ["a.md"], ["b.md"])
        assert later["written"] == ["a.md"]


class TestConflicts:
    @pytest.fixture
    def clash(self, pair: Pair) -> Pair:
        """Both changed a.md; Ana was first."""
        pair.share(a="base")
        pair.ana.write("a.md", "of ana")
        pair.ben.write("a.md", "of ben")
        pair.ana.json("push")
        return pair

    def test_a_push_over_a_newer_version_changes_nothing_and_says_so(self, clash: Pair) -> None:
        pushed = clash.ben.run("push", "--json")

        assert (pushed.code, pushed.json["applied"], pushed.json["conflicts"]) == (3, 0, 1)
        assert "jolli-ops pull" in pushed.stderr
        clash.ana.json("pull")
        assert text(clash.ana, "a.md") == "of ana"

    def test_a_pull_keeps_the_local_file_and_puts_the_other_beside_it(self, clash: Pair) -> None:
        pulled = clash.ben.run("pull", "--json")

        [conflict] = pulled.json["conflicts"]
        assert pulled.code == 3
        assert text(clash.ben, "a.md") == "of ben"
        assert text(clash.ben, conflict["copy"]) == "of ana"
        assert conflict["copy"].startswith("a (conflict ")
        assert [one["serverPath"] for one in clash.ben.json("conflicts")] == ["a.md"]

    def test_until_somebody_decides_neither_file_nor_copy_is_pushed(self, clash: Pair) -> None:
        clash.ben.run("pull")

        pushed = clash.ben.json("push")

        assert (pushed["batches"], pushed["plan"]["held"]) == (0, ["a.md"])

    @pytest.mark.parametrize("pull_first", [True, False])
    def test_mine_is_pushed_over_theirs(self, clash: Pair, pull_first: bool) -> None:
        clash.ben.run("push")
        if pull_first:
            clash.ben.run("pull")

        clash.ben.json("conflicts", "resolve", "a.md", "--keep", "mine")
        clash.ben.json("push")
        clash.ana.json("pull")

        assert text(clash.ana, "a.md") == "of ben"
        assert names(clash.ben) == ["a.md"]
        assert clash.ben.json("conflicts") == []

    def test_theirs_replaces_mine(self, clash: Pair) -> None:
        clash.ben.run("pull")

        clash.ben.json("conflicts", "resolve", "a.md", "--keep", "theirs")

        assert (names(clash.ben), text(clash.ben, "a.md")) == (["a.md"], "of ana")
        assert clash.ben.json("push")["batches"] == 0

    def test_theirs_cannot_be_taken_before_it_was_pulled(self, clash: Pair) -> None:
        clash.ben.run("push")

        refused = clash.ben.run("conflicts", "resolve", "a.md", "--keep", "theirs")

        assert refused.code == 2
        assert "jolli-ops pull" in refused.stderr
        assert text(clash.ben, "a.md") == "of ben"

    def test_pulling_again_makes_no_second_copy(self, clash: Pair) -> None:
        clash.ben.run("pull")
        clash.ben.run("pull")
        clash.ben.run("pull", "--all")

        assert len(names(clash.ben)) == 2

    @pytest.mark.parametrize(("keep", "left"), [("mine", ["a.md"]), ("theirs", [])])
    def test_deleted_there_and_changed_here_is_a_conflict(self, pair: Pair, keep: str, left: list[str]) -> None:
        pair.share(a="base")
        (pair.ana.workspace / "a.md").unlink()
        pair.ana.json("push")
        pair.ben.write("a.md", "of ben")

        pulled = pair.ben.run("pull", "--json")
        pair.ben.json("conflicts", "resolve", "a.md", "--keep", keep)
        pair.ben.json("push")
        pair.ana.json("pull")

        assert pulled.json["conflicts"][0]["serverDeleted"] is True
        assert names(pair.ben) == names(pair.ana) == left

    def test_two_new_files_on_one_path_are_a_conflict(self, pair: Pair) -> None:
        pair.ana.write("a.md", "of ana")
        pair.ana.json("push")
        pair.ben.write("a.md", "of ben")

        pushed = pair.ben.run("push", "--json")
        pair.ben.run("pull")
        pair.ben.json("conflicts", "resolve", "a.md", "--keep", "mine")
        pair.ben.json("push")
        pair.ana.json("pull")

        assert pushed.json["conflicts"] == 1
        assert (names(pair.ana), text(pair.ana, "a.md")) == (["a.md"], "of ben")
        assert pair.ben.json("conflicts") == []

    def test_an_unknown_path_is_told(self, pair: Pair) -> None:
        refused = pair.ana.run("conflicts", "resolve", "none.md", "--keep", "mine")

        assert refused.code == 1
        assert "no conflict about 'none.md'" in refused.stderr


class TestPlanning:
    def test_a_change_while_batches_wait_is_made_on_what_they_will_make(self, pair: Pair) -> None:
        pair.ana.write("a.md", "one")
        pair.ana.json("plan")
        pair.ana.write("a.md", "two")
        pair.ana.json("plan")
        pair.ana.write("a.md", "three")

        pushed = pair.ana.json("push")

        assert (pushed["applied"], pushed["conflicts"]) == (3, 0)
        pair.ben.json("pull")
        assert text(pair.ben, "a.md") == "three"

    def test_many_deletes_at_once_need_a_word(self, pair: Pair) -> None:
        pair.share(**{f"f{number}": "text" * number for number in range(12)})
        for path in pair.ana.workspace.iterdir():
            path.unlink()

        refused = pair.ana.run("push")
        allowed = pair.ana.json("push", "--allow-deletes")

        assert refused.code == 1
        assert "12 of 12 files are gone" in refused.stderr
        assert allowed["applied"] == 12

    def test_what_is_ignored_or_unreadable_from_now_on_is_not_deleted_there(self, pair: Pair) -> None:
        pair.share(a="text", b="other")
        pair.ana.write(".jolliignore", "a.md\n")
        pair.ana.write("b.md", b"\xff\xfe binary")

        pushed = pair.ana.run("push", "--json")

        assert pushed.json["batches"] == 0
        assert [one["path"] for one in pushed.json["plan"]["skipped"]] == ["b.md"]

    def test_patterns_of_the_ignore_file_and_of_the_settings_count(self, pair: Pair) -> None:
        pair.ana.write(".jolliignore", "*.tmp\nbuild/\n")
        pair.ana.write(".jolli/ops.toml", 'exclude = ["secret.md"]\n')
        for name in ("a.md", "a.tmp", "build/b.md", "secret.md", ".git/config"):
            pair.ana.write(name, "text")

        planned = pair.ana.json("push", "--dry-run")

        assert planned["paths"] == ["a.md"]

    def test_a_folder_that_is_not_there_is_refused(self, pair: Pair) -> None:
        refused = pair.ana.run("push", "nowhere")

        assert refused.code == 1
        assert "no such folder" in refused.stderr
