"""The test doubles themselves: a double that is too kind would make every test built on it worthless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
import os
from pathlib import Path
import threading

import pytest

from queueyard.kernel.testing import ClaimHistory, Died, FakeClock, FaultyFiles, Loss, Step


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestFakeClock:
    def test_it_stands_still_until_it_is_moved(self) -> None:
        clock = FakeClock()

        assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
        assert clock.monotonic() == 0.0

    def test_sleeping_moves_it_at_once(self) -> None:
        clock = FakeClock()

        clock.sleep(90)

        assert clock.now() == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
        assert clock.monotonic() == 90.0

    def test_the_wall_clock_may_step_back_and_the_monotonic_one_may_not(self) -> None:
        clock = FakeClock()
        clock.advance(10)

        clock.advance(-60)

        assert clock.now() == datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=50)
        assert clock.monotonic() == 10.0

    def test_no_step_of_any_thread_is_lost(self) -> None:
        clock = FakeClock()

        def step() -> None:
            for _ in range(1000):
                clock.advance(1)

        threads = [threading.Thread(target=step) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert clock.monotonic() == 4000.0


class TestFaultyFiles:
    def test_each_call_is_a_step_with_its_file(self, tmp_path: Path) -> None:
        files = FaultyFiles(tmp_path)
        new, final = str(tmp_path / "new"), str(tmp_path / "final")

        descriptor = files.open(new, os.O_WRONLY | os.O_CREAT)
        files.write(descriptor, b"abc")
        files.truncate(descriptor, 2)
        files.fsync(descriptor)
        files.close(descriptor)
        files.rename(new, final)
        files.fsync_folder(str(tmp_path))
        files.unlink(final)

        assert files.steps == [
            Step(0, "open", new),
            Step(1, "write", new),
            Step(2, "truncate", new),
            Step(3, "fsync", new),
            Step(4, "rename", final),
            Step(5, "fsync_folder", str(tmp_path)),
            Step(6, "unlink", final),
        ]

    @pytest.mark.parametrize(("after", "content"), [(False, b""), (True, b"abc")])
    def test_it_dies_before_or_after_the_chosen_step_and_stays_dead(
        self, tmp_path: Path, after: bool, content: bytes
    ) -> None:
        files = FaultyFiles(tmp_path, die_at=1, after=after)
        descriptor = files.open(str(tmp_path / "x"), os.O_WRONLY | os.O_CREAT)

        with pytest.raises(Died):
            files.write(descriptor, b"abc")

        assert (tmp_path / "x").read_bytes() == content
        with pytest.raises(Died):
            files.write(descriptor, b"more")
        files.close(descriptor)

    def test_no_handler_for_ordinary_errors_survives_death(self) -> None:
        assert not issubclass(Died, Exception)

    def test_whoever_dies_right_after_an_open_leaks_nothing(self, tmp_path: Path) -> None:
        before = open_descriptors()
        files = FaultyFiles(tmp_path, die_at=0, after=True)

        with pytest.raises(Died):
            files.open(str(tmp_path / "x"), os.O_WRONLY | os.O_CREAT)
        files.power_cut(bytes_lost=Loss.NOTHING, names_lost=False)

        assert open_descriptors() == before

    @pytest.mark.parametrize(
        ("loss", "left"), [(Loss.NOTHING, b"durable+lost"), (Loss.HALF, b"durable+l"), (Loss.ALL, b"durable")]
    )
    def test_a_power_cut_takes_bytes_that_were_not_fsynced(self, tmp_path: Path, loss: Loss, left: bytes) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"dur")
        files = FaultyFiles(tmp_path)
        descriptor = files.open(str(path), os.O_WRONLY | os.O_APPEND)
        files.write(descriptor, b"able")
        files.fsync(descriptor)
        files.write(descriptor, b"+lost")
        files.close(descriptor)

        files.power_cut(bytes_lost=loss, names_lost=True)

        assert path.read_bytes() == left

    @pytest.mark.parametrize(("names_lost", "names"), [(True, ["old"]), (False, ["kept", "new"])])
    def test_a_power_cut_takes_names_whose_folder_was_not_fsynced(
        self, tmp_path: Path, names_lost: bool, names: list[str]
    ) -> None:
        (tmp_path / "old").write_bytes(b"content")
        files = FaultyFiles(tmp_path)
        files.close(files.open(str(tmp_path / "new"), os.O_WRONLY | os.O_CREAT))
        files.rename(str(tmp_path / "old"), str(tmp_path / "kept"))

        files.power_cut(bytes_lost=Loss.NOTHING, names_lost=names_lost)

        assert sorted(path.name for path in tmp_path.iterdir()) == names
        assert (tmp_path / names[0]).read_bytes() == b"content"

    def test_names_are_durable_once_their_own_folder_is_fsynced(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        files = FaultyFiles(tmp_path)
        files.close(files.open(str(tmp_path / "one" / "x"), os.O_WRONLY | os.O_CREAT))
        files.close(files.open(str(tmp_path / "two" / "x"), os.O_WRONLY | os.O_CREAT))

        files.fsync_folder(f"{tmp_path}/one/")
        files.power_cut(bytes_lost=Loss.ALL, names_lost=True)

        assert sorted(tmp_path.rglob("x")) == [tmp_path / "one" / "x"]

    def test_a_removed_file_is_back_if_its_folder_was_not_fsynced(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"old")
        files = FaultyFiles(tmp_path)
        files.unlink(str(tmp_path / "x"))
        files.close(files.open(str(tmp_path / "y"), os.O_WRONLY | os.O_CREAT))

        files.power_cut(bytes_lost=Loss.ALL, names_lost=True)

        assert (tmp_path / "x").read_bytes() == b"old"
        assert not (tmp_path / "y").exists()

    def test_an_fsync_after_the_rename_counts_for_the_renamed_file(self, tmp_path: Path) -> None:
        files = FaultyFiles(tmp_path)
        descriptor = files.open(str(tmp_path / "new"), os.O_WRONLY | os.O_CREAT)
        files.write(descriptor, b"content")
        files.rename(str(tmp_path / "new"), str(tmp_path / "final"))

        files.fsync(descriptor)
        files.close(descriptor)
        files.power_cut(bytes_lost=Loss.ALL, names_lost=False)

        assert (tmp_path / "final").read_bytes() == b"content"

    def test_mode_bits_survive(self, tmp_path: Path) -> None:
        (tmp_path / "x").touch(mode=0o600)

        FaultyFiles(tmp_path).power_cut(bytes_lost=Loss.ALL, names_lost=True)

        assert (tmp_path / "x").stat().st_mode & 0o7777 == 0o600


class TestClaimHistory:
    def test_an_ordinary_life_breaks_no_promise(self) -> None:
        history = ClaimHistory()

        history.accepted("a")
        history.started("a", "t1")
        history.lost("a", "t1")
        history.started("a", "t2")
        history.finished("a", "t2")

        assert history.violations() == []

    def test_two_live_tokens_for_one_item_are_found(self) -> None:
        history = ClaimHistory()
        history.accepted("a")
        history.started("a", "t1")

        history.started("a", "t2")

        assert history.violations(all_done=False) == ["a was started under t2 while t1 is live"]

    def test_a_second_finish_is_found(self) -> None:
        history = ClaimHistory()
        history.accepted("a")
        for token in ("t1", "t2"):
            history.started("a", token)
            history.finished("a", token)

        assert history.violations() == ["a was finished 2 times"]

    @pytest.mark.parametrize("move", ["finished", "lost"])
    def test_a_move_under_a_dead_token_is_found(self, move: str) -> None:
        history = ClaimHistory()
        history.accepted("a")
        history.started("a", "t1")
        history.lost("a", "t1")

        getattr(history, move)("a", "t1")

        assert history.violations(all_done=False) == [f"a was {move} under t1, which is not live"]

    def test_a_start_of_what_nobody_accepted_is_found(self) -> None:
        history = ClaimHistory()

        history.started("a", "t1")

        assert history.violations() == ["a was started but never accepted"]

    def test_an_item_that_never_finished_is_found_when_all_should_be_done(self) -> None:
        history = ClaimHistory()
        history.accepted("b")
        history.accepted("a")
        history.started("a", "t1")

        assert history.violations() == ["a was never finished", "b was never finished"]
        assert history.violations(all_done=False) == []
