from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from queueyard.kernel.errors import BadSettings, StorageFailed
from queueyard.kernel.settings import Layer, environment_layer, file_layer, settle

if TYPE_CHECKING:
    from pathlib import Path


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    ttl_s: Annotated[int, msgspec.Meta(ge=1)] = 60
    name: str = "yard"
    ratio: float = 0.5
    verbose: bool = False
    labels: list[str] = []
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < self.ttl_s:
            raise ValueError("limit must not be less than ttl_s")


def flags(**values: Any) -> Layer:
    return Layer(name="flag", values=values, spelling={"ttl_s": "--ttl"})


class TestSettle:
    def test_without_layers_everything_is_default(self) -> None:
        settled = settle(Demo, [])

        assert settled.values == Demo()
        assert set(settled.origin.values()) == {"default"}

    def test_the_strongest_layer_that_speaks_wins_and_is_remembered(self) -> None:
        settled = settle(
            Demo,
            [
                flags(ttl_s=1, name=None),
                Layer(name="environment", values={"ttl_s": "2", "name": "from env"}),
                Layer(name="file.toml", values={"ttl_s": 3, "name": "from file", "ratio": 1}),
            ],
        )

        assert settled.values == Demo(ttl_s=1, name="from env", ratio=1.0)
        assert settled.origin == {
            "ttl_s": "flag",
            "name": "environment",
            "ratio": "file.toml",
            "verbose": "default",
            "labels": "default",
            "limit": "default",
        }

    def test_texts_are_read_as_the_type_that_the_setting_has(self) -> None:
        settled = settle(Demo, [Layer(name="environment", values={"ttl_s": "7", "ratio": "2.5", "verbose": "true"})])

        assert settled.values == Demo(ttl_s=7, ratio=2.5, verbose=True)

    def test_a_text_setting_that_looks_like_a_number_stays_a_text(self) -> None:
        assert settle(Demo, [Layer(name="environment", values={"name": "007"})]).values.name == "007"

    def test_every_fault_of_every_layer_is_told_at_once_with_its_place(self) -> None:
        with pytest.raises(BadSettings) as caught:
            settle(
                Demo,
                [
                    flags(ttl_s=0),
                    Layer(name="environment", values={"ratio": "much"}, spelling={"ratio": "DEMO_RATIO"}),
                    Layer(name="file.toml", values={"verbos": True, "labels": "one", "name": 5}),
                ],
            )

        assert str(caught.value).splitlines() == [
            "these settings are wrong:",
            "  - verbos (file.toml): no such setting; did you mean verbose?",
            "  - labels (file.toml): Expected `array`, got `str`",
            "  - name (file.toml): Expected `str`, got `int`",
            "  - DEMO_RATIO (environment): Expected `float`, got `str`",
            "  - --ttl (flag): Expected `int` >= 1",
        ]
        assert caught.value.hint == "Correct them all, then run the same command again."
        assert caught.value.exit_code == 1

    def test_a_wrong_value_is_not_repeated_because_it_may_be_a_secret(self) -> None:
        with pytest.raises(BadSettings) as caught:
            settle(Demo, [Layer(name="environment", values={"ttl_s": "hunter2"})])

        assert "hunter2" not in str(caught.value)

    def test_a_rule_over_several_settings_is_told_too(self) -> None:
        with pytest.raises(BadSettings) as caught:
            settle(Demo, [flags(limit=5, name=5)])

        assert str(caught.value).splitlines() == [
            "these settings are wrong:",
            "  - name (flag): Expected `str`, got `int`",
            "  - limit must not be less than ttl_s",
        ]

    @given(
        values=st.dictionaries(
            st.sampled_from(["ttl_s", "name", "ratio", "verbose", "labels", "limit", "else"]),
            st.one_of(
                st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()), st.just({"a": 1})
            ),
        )
    )
    def test_no_value_of_any_type_gets_anything_but_settings_or_a_clear_error(self, values: dict[str, Any]) -> None:
        try:
            settled = settle(Demo, [Layer(name="file.toml", values=values)])
        except BadSettings:
            return

        assert msgspec.convert(msgspec.structs.asdict(settled.values), Demo) is not None


class TestEnvironmentLayer:
    def test_a_setting_is_spelled_with_the_prefix_in_capitals(self) -> None:
        layer = environment_layer(Demo, "demo", {"DEMO_TTL_S": "5", "DEMO_ELSE": "x", "TTL_S": "6"})

        assert layer.values["ttl_s"] == "5"
        assert layer.spelled("ttl_s") == "DEMO_TTL_S"
        assert settle(Demo, [layer]).values == Demo(ttl_s=5)

    def test_an_empty_variable_says_nothing(self) -> None:
        settled = settle(Demo, [environment_layer(Demo, "demo", {"DEMO_TTL_S": "", "DEMO_NAME": ""})])

        assert settled.values == Demo()
        assert settled.origin["ttl_s"] == "default"


class TestFileLayer:
    def test_a_file_or_one_table_of_it_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "yard.toml"
        path.write_text('ttl_s = 5\n[queen]\nname = "q"\n')

        assert file_layer(path).values == {"ttl_s": 5, "queen": {"name": "q"}}
        assert file_layer(path, "queen") == Layer(name=str(path), values={"name": "q"})
        assert file_layer(path, "jjq").values == {}

    def test_a_missing_file_says_nothing(self, tmp_path: Path) -> None:
        assert file_layer(tmp_path / "missing.toml").values == {}

    @pytest.mark.parametrize("content", [b"ttl_s =", b'name = "\xff"', b"x = " + b"[" * 5000, b"\x00"])
    def test_a_file_that_is_not_toml_is_told_and_left_alone(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "yard.toml"
        path.write_bytes(content)

        with pytest.raises(BadSettings, match="is not a TOML file") as caught:
            file_layer(path)

        assert caught.value.hint == f"Correct it: $EDITOR {path}"
        assert path.read_bytes() == content

    def test_a_value_in_the_place_of_the_table_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "yard.toml"
        path.write_text("queen = 5\n")

        with pytest.raises(BadSettings, match="queen must be a table") as caught:
            file_layer(path, "queen")

        assert caught.value.hint == "Write [queen] above its settings."

    def test_a_folder_in_the_place_of_the_file_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StorageFailed) as caught:
            file_layer(tmp_path)

        assert caught.value.hint == f"A folder stands where a file should be: ls -ld {tmp_path}"
