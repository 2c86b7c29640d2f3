"""Configuration keys: what is allowed, what is refused, and what is shown."""

from __future__ import annotations

import pytest

from queueyard.jjq.errors import InvalidValue, UnknownKey
from queueyard.jjq.settings import DEFAULTS, Settings, check_key, check_value, effective, load_settings, read_config
from queueyard.kernel.errors import BadSettings


def test_without_anything_stored_the_defaults_of_the_spec_hold() -> None:
    config = read_config({})

    assert (config.trunk_bookmark, config.check_command, config.max_failures) == ("main", "sh -c 'exit 1'", 3)
    assert config.check_timeout_s is None


def test_every_default_is_a_value_that_may_be_written() -> None:
    for key, value in DEFAULTS.items():
        assert check_value(key, value) == value


def test_stored_values_win_and_keys_of_other_tools_are_left_out() -> None:
    values = effective({"max_failures": "7", "other.key": "x"})

    assert values["max_failures"] == "7"
    assert set(values) == set(DEFAULTS)


def test_an_unknown_key_gets_a_suggestion() -> None:
    with pytest.raises(UnknownKey) as fault:
        check_key("trunk_bookmrak")

    assert fault.value.hint == "Did you mean trunk_bookmark?"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_failures", "-1"),
        ("queueyard.check_timeout_s", "inf"),
        ("queueyard.reuse_checks", "True"),
        ("check_command", ""),
    ],
)
def test_a_stored_value_that_makes_no_sense_names_its_repair(key: str, value: str) -> None:
    with pytest.raises(InvalidValue, match="configuration is wrong") as fault:
        read_config({key: value})

    assert f"jjq config {key}" in (fault.value.hint or "")


def test_blanks_around_a_value_do_not_count() -> None:
    assert check_value("max_failures", " 5\n") == "5"


def test_settings_of_the_caller_come_from_the_environment() -> None:
    assert load_settings({}) == Settings()
    assert load_settings({"JJQ_LOCK_TIMEOUT_S": "2.5"}).lock_timeout_s == 2.5
    with pytest.raises(BadSettings, match="JJQ_HEARTBEAT_S"):
        load_settings({"JJQ_HEARTBEAT_S": "often"})
