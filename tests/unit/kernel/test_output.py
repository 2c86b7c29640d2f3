from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.output import Output, printable
from queueyard.kernel.testing import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def piped(**options: Any) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(stdout=out, stderr=err, environment={}, **options), out, err


def on_terminal(**environment: str) -> tuple[Output, Terminal, Terminal]:
    out, err = Terminal(), Terminal()
    return Output(stdout=out, stderr=err, environment=environment), out, err


def test_data_goes_to_stdout_and_talk_to_stderr() -> None:
    output, out, err = piped()

    output.text("data")
    output.note("talk")
    output.warn("careful")

    assert out.getvalue() == "data\n"
    assert err.getvalue() == "talk\nwarning: careful\n"


def test_somebodys_text_keeps_its_lines_but_sends_no_escape_sequence() -> None:
    assert printable("one\n\ttwo \x1b[2Jthree \ud800") == "one\n\ttwo  [2Jthree  "


def test_json_is_one_document_with_a_newline() -> None:
    output, out, _ = piped(as_json=True)

    output.data({"a": [1, "ü"]})

    assert json.loads(out.getvalue()) == {"a": [1, "ü"]}
    assert out.getvalue().endswith("}\n")


class TestTable:
    def test_columns_are_aligned_and_lines_do_not_end_with_blanks(self) -> None:
        output, out, _ = piped()

        output.table(["ID", "SUBJECT"], [["1", "short"], ["22", None], [333, "日本"]])

        assert out.getvalue() == "ID   SUBJECT\n1    short\n22   -\n333  日本\n"

    def test_wide_and_combining_characters_are_counted_as_they_look(self) -> None:
        output, out, _ = piped()

        output.table(["A", "B"], [["日本", "x"], ["e\u0301", "y"]])

        assert out.getvalue().splitlines() == ["A     B", "日本  x", "e\u0301     y"]

    def test_without_rows_only_the_header_is_shown(self) -> None:
        output, out, _ = piped()

        output.table(["ID", "SUBJECT"], [])

        assert out.getvalue() == "ID  SUBJECT\n"

    def test_a_row_that_does_not_fit_the_columns_is_a_bug(self) -> None:
        output, _, _ = piped()

        with pytest.raises(ValueError, match="zip"):
            output.table(["ID", "SUBJECT"], [["1"]])

    @given(cell=st.text())
    def test_no_cell_can_start_a_line_or_send_an_escape_sequence(self, cell: str) -> None:
        output, out, _ = piped()

        output.table(["A"], [[cell], [b"\xff".decode("utf-8", "surrogateescape") + "\x1b[2J\x9b2J"]])

        assert len(out.getvalue().split("\n")) == 4
        assert not {"\x1b", "\x9b", "\r"} & set(out.getvalue())
        out.getvalue().encode("utf-8")

    def test_on_a_terminal_a_long_line_is_cut_where_the_line_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "10")
        output, out, _ = on_terminal(NO_COLOR="1")

        output.table(["A", "B"], [["1", "0123456789"], ["2", "日本日本日本"], ["3", "fits"]])

        assert out.getvalue().splitlines() == ["A  B", "1  012345…", "2  日本日…", "3  fits"]

    def test_a_pipe_gets_the_whole_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "10")
        output, out, _ = piped()

        output.table(["A"], [["x" * 100]])

        assert "x" * 100 in out.getvalue()

    @pytest.mark.timeout(60)
    def test_a_text_of_a_megabyte_is_cut_without_counting_it_again_for_each_character(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        output, out, _ = on_terminal(NO_COLOR="1")

        output.table(["A"], [["ü" * 1_000_000]])

        assert out.getvalue().splitlines()[1] == "ü" * 79 + "…"


class TestStyle:
    def test_colour_is_for_terminals(self) -> None:
        assert on_terminal()[0].style("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
        assert piped()[0].style("x", "bold", "red") == "x"

    @pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_a_terminal_may_refuse_colour(self, environment: dict[str, str]) -> None:
        assert on_terminal(**environment)[0].style("x", "red") == "x"

    def test_an_empty_no_color_refuses_nothing(self) -> None:
        assert on_terminal(NO_COLOR="")[0].style("x", "red") == "\x1b[31mx\x1b[0m"


class TestProgress:
    def test_it_is_silent_where_stderr_is_no_terminal(self) -> None:
        output, out, err = piped()

        with output.progress("copy", 3) as bar:
            bar.advance(3)

        assert (out.getvalue(), err.getvalue()) == ("", "")

    def test_it_is_drawn_on_stderr_with_rate_and_time_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        output, out, err = on_terminal()
        clock = FakeClock()

        with output.progress("copy", 4, clock) as bar:
            clock.advance(1)
            bar.advance(1, "a.txt")

        assert out.getvalue() == ""
        assert err.getvalue() == "\r\x1b[2Kcopy  █████···············  1/4  1/s  3 s left  a.txt\n"

    def test_it_is_redrawn_at_most_ten_times_a_second_and_at_the_end(self) -> None:
        output, _, err = on_terminal()
        clock = FakeClock()

        with output.progress("copy", 100, clock) as bar:
            for _ in range(100):
                clock.advance(0.01)
                bar.advance()

        drawn = err.getvalue().count("\r")
        assert 10 <= drawn <= 12
        assert "100/100" in err.getvalue().rpartition("\r")[2]

    def test_steps_are_named_while_they_last_and_more_of_them_may_turn_up(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        output, _, err = on_terminal()
        clock = FakeClock()

        with output.progress("run", 1, clock) as bar:
            bar.expect(1)
            with bar.step("read"):
                clock.advance(30)
            clock.advance(1)
            with bar.step("count"):
                clock.advance(29)

        assert [line.split("  ") for line in err.getvalue().split("\r\x1b[2K")[1:]] == [
            ["run", "·" * 20, "0/2", "read"],
            ["run", "█" * 10 + "·" * 10, "1/2", "30 s left", "read"],
            ["run", "█" * 10 + "·" * 10, "1/2", "31 s left", "count"],
            ["run", "█" * 20, "2/2", "count\n"],
        ]

    def test_a_step_that_fails_is_not_done(self) -> None:
        output, _, err = on_terminal()

        with pytest.raises(ValueError, match="no"), output.progress("run", 1, FakeClock()) as bar, bar.step("read"):
            raise ValueError("no")

        assert "1/1" not in err.getvalue()

    def test_nothing_to_do_is_done(self) -> None:
        output, _, err = on_terminal()

        with output.progress("copy", 0, FakeClock()) as bar:
            bar.advance(0)

        assert "0/0" in err.getvalue()
