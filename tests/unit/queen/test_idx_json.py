from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.errors import CorruptFile
from queueyard.queen.idx_json import IDX_NAME, IdxJson, export, is_current
from queueyard.queen.store import MESSAGES, Store

if TYPE_CHECKING:
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer


def test_the_index_of_the_schema_names_the_last_line_of_each_message(store: Store, home: Home, write: Writer) -> None:
    path = write(
        MESSAGES,
        {"id": "qm-1", "to": "ui", "issue_id": "qb-1"},
        b"\n",
        b"no json\n",
        {"id": "qm-2", "to": "ui", "thread_id": "qm-1", "issue_id": "qb-1"},
        {"_migration": "v2"},
        {"id": "qm-1", "to": "api"},
        {"id": "qm-2", "to": 7},
    )

    told = msgspec.json.decode(export(store).read_bytes(), type=IdxJson)

    lines = path.read_bytes().split(b"\n")
    assert told == IdxJson(
        by_id={"qm-1": 6, "qm-2": 4},
        by_to={"api": ["qm-1"], "ui": ["qm-2"]},
        by_issue={"qb-1": ["qm-1", "qm-2"]},
        by_thread={"qm-1": ["qm-2"]},
    )
    assert all(f'"{identifier}"'.encode() in lines[number - 1] for identifier, number in told.by_id.items())


def test_no_messages_make_an_empty_index(store: Store, home: Home) -> None:
    assert export(store) == home.beads / IDX_NAME
    assert is_current(store)
    assert msgspec.json.decode((home.beads / IDX_NAME).read_bytes()) == {
        "by_id": {},
        "by_to": {},
        "by_issue": {},
        "by_thread": {},
    }


def test_an_index_fits_until_something_is_written(store: Store, write: Writer) -> None:
    write(MESSAGES, {"id": "qm-1", "to": "ui"})
    export(store)
    before = is_current(store)

    write(MESSAGES, {"id": "qm-1", "read": True})

    assert before
    assert not is_current(store)


def test_no_index_fits_nothing(store: Store) -> None:
    assert not is_current(store)


def test_an_index_that_makes_no_sense_is_told(store: Store, home: Home) -> None:
    (home.beads / IDX_NAME).write_text('{"by_id": []}')

    with pytest.raises(CorruptFile, match=IDX_NAME):
        is_current(store)
