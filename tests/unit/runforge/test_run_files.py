"""The folder of a run: requests that make sense, whole results, and a log whose lock says who is left."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.runforge.errors import InvalidRequest, MissingFiles
from queueyard.runforge.run_files import (
    is_log_held,
    last_words,
    open_log,
    read_metrics,
    read_request,
    read_result,
    request_faults,
    requires_gpu,
    write_log,
    write_result,
)

if TYPE_CHECKING:
    from pathlib import Path

TRAINING: dict[str, Any] = {
    "version": 1,
    "preset": "fast",
    "dataset": {"path": "data.csv", "label_column": "label"},
    "model": {"family": "random_forest", "hyperparameters": {}},
    "device": {"type": "cpu"},
}
COMMAND: dict[str, Any] = {"version": 1, "command": ["true"]}


@pytest.mark.parametrize(
    "raw", [TRAINING, COMMAND, TRAINING | {"unknown": [1]}, {**COMMAND, "env": {"N": 1}, "cwd": "x"}]
)
def test_these_requests_make_sense(raw: dict[str, Any]) -> None:
    assert request_faults(raw) == []


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (COMMAND | {"version": 0}, "version"),
        (COMMAND | {"version": "1"}, "version"),
        (COMMAND | {"version": True}, "version"),
        ({"command": ["true"]}, "version"),
        (COMMAND | {"command": []}, "command"),
        (COMMAND | {"command": "true"}, "command"),
        (COMMAND | {"command": [["true"]]}, "command"),
        (COMMAND | {"command": [True]}, "command"),
        (COMMAND | {"cwd": 7}, "cwd"),
        (COMMAND | {"env": ["A=1"]}, "env"),
        (COMMAND | {"env": {"A": None}}, "env"),
        (COMMAND | {"timeout_s": 0}, "timeout_s"),
        (COMMAND | {"timeout_s": "1h"}, "timeout_s"),
        (COMMAND | {"requires_gpu": "yes"}, "requires_gpu"),
        (TRAINING | {"preset": "lazy"}, "preset"),
        (TRAINING | {"dataset": {"path": "data.csv"}}, "dataset.label_column"),
        (TRAINING | {"dataset": {"label_column": "x"}}, "dataset.path"),
        (TRAINING | {"model": {}}, "model.family"),
        (TRAINING | {"model": {"family": "x", "hyperparameters": 7}}, "model.hyperparameters"),
        (TRAINING | {"device": {"type": "tpu"}}, "device.type"),
    ],
    ids=str,
)
def test_a_fault_names_its_field(raw: dict[str, Any], field: str) -> None:
    assert [fault.partition(":")[0] for fault in request_faults(raw)] == [field]


@pytest.mark.parametrize(
    ("raw", "needed"),
    [(COMMAND, False), (COMMAND | {"requires_gpu": True}, True), (TRAINING | {"device": {"type": "gpu"}}, True)],
)
def test_a_gpu_is_needed_where_the_request_says_so(raw: dict[str, Any], needed: bool) -> None:
    assert requires_gpu(raw) is needed


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingFiles, match="Run directory not found"):
        read_request(tmp_path / "nowhere")
    with pytest.raises(MissingFiles, match=r"request\.json not found"):
        read_request(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": 1}'])
def test_a_request_that_makes_no_sense_is_invalid(tmp_path: Path, content: str) -> None:
    (tmp_path / "request.json").write_text(content)

    with pytest.raises(InvalidRequest, match=r"request\.json"):
        read_request(tmp_path)


def test_a_long_request_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"version": 1, "command": ["true", "%s"]}' % ("x" * 200_000))

    assert len(read_request(tmp_path)["command"][1]) == 200_000


def test_a_result_replaces_the_one_before(tmp_path: Path) -> None:
    write_result(tmp_path, {"status": "failed"})
    write_result(tmp_path, {"status": "succeeded"})

    assert read_result(tmp_path) == {"status": "succeeded"}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_result_that_makes_no_sense_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content)

    assert read_result(tmp_path) is None


def test_metrics_are_the_numbers_of_the_file(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == {}
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "metrics.json").write_text('{"loss": 0.5, "name": "x", "good": true, "epochs": 3}')

    assert read_metrics(tmp_path) == {"loss": 0.5, "epochs": 3}


def test_each_attempt_has_a_log_of_its_own(tmp_path: Path) -> None:
    first = open_log(tmp_path)
    write_log(first, "old")
    second = open_log(tmp_path)
    write_log(first, "a late word of the first attempt")
    write_log(second, "new")

    assert (tmp_path / "logs.txt").read_text() == "new\n"
    os.close(first)
    os.close(second)


def test_the_log_is_held_until_the_last_process_of_the_run_is_gone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log, stderr=log)
    held = [is_log_held(tmp_path)]

    os.close(log)
    held.append(is_log_held(tmp_path))
    child.communicate()
    held.append(is_log_held(tmp_path))

    assert held == [True, True, False]


def test_a_log_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    assert not is_log_held(tmp_path)


def test_the_last_words_are_the_end_of_the_log_without_tokens(tmp_path: Path) -> None:
    assert last_words(tmp_path) is None
    (tmp_path / "logs.txt").write_text("[RF:STAGE=STARTING]\n[RF:STAGE=FAILED]\n")
    assert last_words(tmp_path) is None

    (tmp_path / "logs.txt").write_text("x" * 100_000 + "\nTraceback\nValueError: no\n[RF:STAGE=FAILED]\n")

    words = last_words(tmp_path)
    assert words is not None
    assert words.endswith("Traceback\nValueError: no")
    assert len(words) <= 500
