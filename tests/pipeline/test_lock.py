"""One run at a time changes the tables of a home, wherever that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.errors import LockTimeout
from queueyard.pipeline.lock import holding, lock_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_has_its_lock_in_it_by_whatever_name_it_goes(tmp_path: Path) -> None:
    home = tmp_path / "two words"
    home.mkdir()

    with holding(lock_of(str(home))), pytest.raises(LockTimeout), holding(lock_of(home.as_uri())):
        pytest.fail("both hold it")

    assert [file.name for file in home.iterdir()] == ["lock"]


def test_an_object_store_has_a_lock_of_this_user_and_nothing_is_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, state = tmp_path / "here", tmp_path / "state"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))

    with holding(lock_of("s3://bucket/yard")), holding(lock_of("s3://bucket/other")):
        with pytest.raises(LockTimeout), holding(lock_of("s3://bucket/yard")):
            pytest.fail("both hold it")
        assert lock_of("s3://bucket/yard").path.is_relative_to(state)

    assert list(here.iterdir()) == []
