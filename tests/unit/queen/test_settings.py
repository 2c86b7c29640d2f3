from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest

from queueyard.kernel.clock import BadTime
from queueyard.kernel.errors import BadSettings, CorruptFile
from queueyard.queen.errors import InvalidValue, NoIdentity
from queueyard.queen.settings import (
    CONFIG_NAME,
    SETTING_NAMES,
    QueenSettings,
    check_name,
    identity,
    load,
    parse_ttl,
    store_setting,
)

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.queen.home import Home


@pytest.fixture
def beads(home: Home) -> Path:
    return home.beads


def configure(beads: Path, text: str) -> None:
    (beads / CONFIG_NAME).write_text(text, encoding="utf-8")


# --- layers ----------------------------------------------------------------------------------------------------------


def test_nothing_said_means_the_defaults(beads: Path) -> None:
    settled = load(beads, {})

    assert settled.values == QueenSettings(agent=None, ttl="2h", strict=False, check_issues=True, lock_timeout_s=10.0)
    assert set(settled.origin.values()) == {"default"}
    assert set(settled.origin) == set(SETTING_NAMES)


def test_a_flag_comes_before_the_environment_and_the_environment_before_the_file(beads: Path) -> None:
    configure(beads, "agent: from-file\nttl: 45m\nstrict: true\n")
    environment = {"QUEEN_AGENT": "from-environment", "QUEEN_TTL": "90s"}

    settled = load(beads, environment, agent="from-flag")

    assert (settled.values.agent, settled.values.ttl, settled.values.strict) == ("from-flag", "90s", True)
    assert settled.origin["agent"] == "flag"
    assert settled.origin["ttl"] == "environment"
    assert settled.origin["strict"] == str(beads / CONFIG_NAME)
    assert settled.origin["lock_timeout_s"] == "default"


def test_identity_has_its_own_order_of_variables(beads: Path) -> None:
    configure(beads, "agent: file\n")
    variables = {"FACTORY_DROID": "third", "QUEEN_DROID": "second", "QUEEN_AGENT": "first"}

    found = []
    while variables:
        found.append(load(beads, variables).values.agent)
        variables.popitem()

    assert found == ["first", "second", "third"]
    assert load(beads, {"QUEEN_AGENT": ""}).values.agent == "file"


def test_the_old_name_of_the_agent_is_read_where_the_new_one_is_missing(beads: Path) -> None:
    configure(beads, "droid: old\n")
    assert load(beads, {}).values.agent == "old"

    configure(beads, "droid: old\nagent: new\n")
    assert load(beads, {}).values.agent == "new"


def test_who_is_calling_must_be_said_somewhere() -> None:
    assert identity(QueenSettings(agent="ui")) == "ui"
    with pytest.raises(NoIdentity) as fault:
        identity(QueenSettings())
    assert "QUEEN_AGENT" in (fault.value.hint or "")


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "agent"),
    [
        ("agent: ui", "ui"),
        ('agent: "ui"', "ui"),
        ("agent: 'ui'", "ui"),
        ("agent:ui", "ui"),
        ("agent:   ui   ", "ui"),
        ("agent: ui # that is me", "ui"),
        ('agent: "ui" # that is me', "ui"),
        ('agent: "u#i"', "u#i"),
        ("agent:", None),
        ('agent: ""', None),
        ("# agent: ui", None),
    ],
)
def test_a_value_is_read_as_yaml_would(beads: Path, line: str, agent: str | None) -> None:
    configure(beads, f"---\n{line}\n")

    assert load(beads, {}).values.agent == agent


def test_keys_of_other_tools_and_what_belongs_to_them_are_left_alone(beads: Path) -> None:
    configure(beads, "theirs:\n  nested: 1\n\tdeeper: 2\nlist:\n- one\n- agent: not-me\nagent: ui\n\n# end\n")

    assert load(beads, {}).values.agent == "ui"


def test_a_line_that_is_nothing_is_told_with_its_number(beads: Path) -> None:
    configure(beads, "agent: ui\nnonsense\n")

    with pytest.raises(BadSettings, match="line 2"):
        load(beads, {})


def test_a_file_that_is_no_text_is_told(beads: Path) -> None:
    (beads / CONFIG_NAME).write_bytes(b"agent: \xff\n")

    with pytest.raises(CorruptFile, match=CONFIG_NAME):
        load(beads, {})


def test_every_wrong_value_is_told_at_once_with_its_place(beads: Path) -> None:
    configure(beads, "strict: perhaps\n")

    with pytest.raises(BadSettings) as fault:
        load(beads, {"QUEEN_LOCK_TIMEOUT_S": "soon", "QUEEN_CHECK_ISSUES": "7"})

    told = str(fault.value)
    assert "strict" in told
    assert "QUEEN_LOCK_TIMEOUT_S (environment)" in told
    assert "QUEEN_CHECK_ISSUES (environment)" in told


@pytest.mark.parametrize("ttl", ["0s", "-5m", "soon", "90"])
def test_a_time_to_live_that_is_none_is_refused_wherever_it_stands(beads: Path, ttl: str) -> None:
    with pytest.raises(BadSettings, match="ttl"):
        load(beads, {"QUEEN_TTL": ttl})


# --- time to live ----------------------------------------------------------------------------------------------------


def test_a_time_to_live_knows_all_units() -> None:
    assert [parse_ttl(text) for text in ("90s", "45m", "1h30m", "2d", "1w")] == [90, 2700, 5400, 172800, 604800]


@pytest.mark.parametrize("text", ["0s", "0h", "-1h"])
def test_zero_and_below_are_no_time_to_live(text: str) -> None:
    with pytest.raises(InvalidValue, match="longer than zero"):
        parse_ttl(text)


@pytest.mark.parametrize("text", ["", "90", "2 hours", "h", "1y"])
def test_what_is_no_duration_is_no_time_to_live(text: str) -> None:
    with pytest.raises(BadTime):
        parse_ttl(text)


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_setting_is_written_in_its_place_and_everything_else_stays(beads: Path) -> None:
    configure(beads, "# mine\ntheirs:\n  nested: 1\nttl: 1h # not too long\nagent: ui\n")

    path = store_setting(beads, "ttl", "45m")

    assert path.read_text() == "# mine\ntheirs:\n  nested: 1\nttl: 45m # not too long\nagent: ui\n"


def test_writing_the_agent_replaces_its_old_name(beads: Path) -> None:
    configure(beads, "droid: old\nttl: 1h\nagent: older\n")

    store_setting(beads, "droid", "ui")

    assert (beads / CONFIG_NAME).read_text() == "agent: ui\nttl: 1h\n"


def test_the_first_setting_makes_the_file(beads: Path) -> None:
    store_setting(beads, "strict", "true")

    assert load(beads, {}).values.strict is True


@given(value=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_reads_back_as_it_was_written(beads: Path, value: str) -> None:
    store_setting(beads, "agent", value)

    assert load(beads, {}).values.agent == value


@pytest.mark.parametrize("value", ["ui\nttl: 1s", "ui\u2028strict: true", "a\x00b"])
def test_a_value_of_several_lines_is_refused(beads: Path, value: str) -> None:
    with pytest.raises(InvalidValue, match="one line"):
        store_setting(beads, "agent", value)

    assert not (beads / CONFIG_NAME).exists()


def test_a_wrong_value_is_not_written(beads: Path) -> None:
    for name, value in (("ttl", "0s"), ("strict", "perhaps"), ("lock_timeout_s", "soon")):
        with pytest.raises(BadSettings):
            store_setting(beads, name, value)

    assert not (beads / CONFIG_NAME).exists()


def test_an_unknown_setting_is_refused_with_the_nearest_name(beads: Path) -> None:
    assert check_name("droid") == "agent"
    with pytest.raises(BadSettings, match="did you mean ttl"):
        store_setting(beads, "tll", "1h")
