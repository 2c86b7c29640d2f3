"""`panqueue sandbox` as people and programs call it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
import pytest

from executor_crews import need_a_sandbox
from queueyard.panqueue.cli import main
from queueyard.panqueue.executors.guarantees import level
from queueyard.panqueue.executors.machine import this_machine

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["sandbox", *words])


@pytest.fixture
def _sandbox() -> None:
    need_a_sandbox()


@pytest.mark.usefixtures("_sandbox")
def test_explain_tells_what_holds_a_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps({"read": [str(tmp_path)]}))

    for text in (str(tmp_path / "policy.json"), json.dumps({"read": [str(tmp_path)]})):
        answer = call("explain", text, "--json")
        told: dict[str, Any] = json.loads(answer.stdout)

        assert answer.exit_code == 0
        assert told["enforced"] is True
        assert told["level"] == level(this_machine())
        assert {one["what"]: one["allowed"] for one in told["guarantees"]}["read"] == str(tmp_path)


def test_explain_leaves_with_1_if_something_is_not_held() -> None:
    policy = '{"net": ["example.org:443"]}'

    told = call("explain", policy, "--without-bubblewrap", "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["enforced"] is False

    answer = call("explain", policy, "--without-bubblewrap")
    assert answer.exit_code == 1
    assert "this machine cannot enforce the policy" in answer.stderr


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("{", "not a policy"),
        ('{"raed": []}', "not a policy"),
        ('{"read": ["/no/such/place"]}', "/no/such/place does not exist"),
        ("no-such-file.json", "cannot read no-such-file.json"),
    ],
)
def test_what_is_no_policy_is_refused_with_a_hint(policy: str, reason: str) -> None:
    answer = call("explain", policy)

    assert answer.exit_code == 1
    assert reason in answer.stderr
    assert "Hint:" in answer.stderr


def test_tiers_shows_all_of_them() -> None:
    told = json.loads(call("tiers", "--json").stdout)

    assert list(told["tiers"]) == ["inline", "subprocess", "sandbox"]
    assert call("tiers").stdout.startswith("TIER")


def test_the_flag_for_json_may_stand_before_the_command() -> None:
    answer = CliRunner().invoke(main, ["--json", "sandbox", "tiers"])

    assert "machine" in json.loads(answer.stdout)


@pytest.mark.usefixtures("_sandbox")
def test_run_prints_the_result_and_kills_what_takes_too_long() -> None:
    answer = call("run", "{}", "executor_handlers:add", '{"a": 1, "b": 2}')
    assert (answer.exit_code, json.loads(answer.stdout)) == (0, {"value": 3})

    task = call("run", "{}", "executor_handlers:multiply", '{"a": 5}')
    assert (task.exit_code, task.stdout) == (0, "10\n")

    late = call("run", "{}", "executor_handlers:spin", '"spin"', "--timeout", "0.5")
    assert late.exit_code == 1
    assert "was killed after 0.5 s" in late.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("executor_handlers:fail",), "not today"),
        (("executor_handlers:nothing",), "has no nothing"),
        (("no_such_module:x",), "no module no_such_module"),
        (("executor_handlers",), "not MODULE:OBJECT"),
        (("executor_handlers:add", "{"), "the payload is not JSON"),
    ],
)
@pytest.mark.usefixtures("_sandbox")
def test_run_tells_what_went_wrong(words: tuple[str, ...], reason: str) -> None:
    answer = call("run", "{}", *words)

    assert answer.exit_code in {1, 2}
    assert reason in answer.stderr
