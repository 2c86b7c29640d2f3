from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.log import LineFormatter, redact, start_logging
from queueyard.kernel.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "hunter2"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger("queueyard")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield logger
    logger.handlers[:], logger.level, logger.propagate = before


def line(message: str, **facts: object) -> str:
    record = logging.LogRecord("queueyard.queen", logging.INFO, "", 0, message, None, None)
    record.facts = facts
    return LineFormatter(FakeClock()).format(record)


class TestRedact:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            (f"redis://:{SECRET}@host:6379/0", "redis://:***@host:6379/0"),
            (f"redis://user:{SECRET}@host", "redis://user:***@host"),
            (f"redis://user:p@{SECRET}@host", "redis://user:***@host"),
            (f"postgres://user:{SECRET}/x@host", "postgres://user:***@host"),
            (f"http://a/b,redis://:{SECRET}@c", "http://a/b,redis:***@c"),
            (f'{{"a":"redis://:{SECRET}@host","b":"x@y"}}', '{"a":"redis://:***@host","b":"x@y"}'),
            (f"https://{SECRET}@host/repository", "https://***@host/repository"),
            (f"Authorization: Bearer {SECRET}", "Authorization: ***"),
            (f"Authorization: Token {SECRET}", "Authorization: ***"),
            (f'{{"authorization": "Basic {SECRET}==", "status": 401}}', '{"authorization": "***", "status": 401}'),
            (f"authorization={SECRET} status=401", "authorization=*** status=401"),
            (f"sent bearer {SECRET}", "sent bearer ***"),
            (f"token={SECRET}", "token=***"),
            (f"API_KEY: {SECRET}", "API_KEY: ***"),
            (f"AWS_SECRET_ACCESS_KEY={SECRET}", "AWS_SECRET_ACCESS_KEY=***"),
            (f"passphrase={SECRET}", "passphrase=***"),
            (f'password="a {SECRET}"', "password=***"),
            (f'password="a\\" {SECRET}" next', "password=*** next"),
            (f"password='{SECRET},{SECRET}'", "password=***"),
            (f"password=a,{SECRET};{SECRET}", "password=***"),
            (f'password="cut off {SECRET}', "password=***"),
            (f"?token={SECRET}&page=2", "?token=***&page=2"),
            (f'{{"client_secret":"{SECRET}","n":1}}', '{"client_secret":***,"n":1}'),
        ],
    )
    def test_a_secret_never_passes(self, text: str, shown: str) -> None:
        assert redact(text) == shown

    @pytest.mark.parametrize(
        "text",
        [
            "5 tokens used: none left",
            "https://host:8080/path",
            "ssh://git@host/repository",
            "https://host/path?mail=a@b",
            "mail to a@b",
            "the secret of success",
            "author=me",
        ],
    )
    def test_ordinary_talk_passes_as_it_is(self, text: str) -> None:
        assert redact(text) == text

    @given(before=st.text(), after=st.text())
    def test_whatever_stands_around_a_password_in_an_address_it_does_not_pass(self, before: str, after: str) -> None:
        assert SECRET not in redact(f"{before} redis://user:{SECRET}@host {after}")

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("part", ["a.-", "a://b:", "token ", 'token="', "authorization= ", "bearer ", "x"])
    def test_no_text_of_a_megabyte_holds_up_the_log(self, part: str) -> None:
        text = part * (1_000_000 // len(part))

        assert len(redact(text)) <= 2 * len(text)


class TestLineFormatter:
    def test_a_line_has_time_level_logger_message_and_facts(self) -> None:
        assert (
            line("started", pid=5, token=SECRET) == "2026-01-01T00:00:00Z info queueyard.queen started pid=5 token=***"
        )

    @given(message=st.text(), fact=st.text())
    def test_no_message_or_fact_can_start_a_line_of_its_own(self, message: str, fact: str) -> None:
        assert len(line(message, fact=fact).splitlines()) == 1

    def test_control_characters_are_spelled_out(self) -> None:
        assert line("a\nb", subject="\x1b[2J").endswith("a\\nb subject=\\x1b[2J")

    def test_a_traceback_follows_on_lines_of_its_own_without_secrets(self) -> None:
        with pytest.raises(ValueError, match="token") as caught:
            raise ValueError(f"token={SECRET}\x1b[2J")
        record = logging.LogRecord("queueyard", logging.ERROR, "", 0, "failed", None, caught._excinfo)

        lines = LineFormatter(FakeClock()).format(record).split("\n")

        assert lines[0] == "2026-01-01T00:00:00Z error queueyard failed"
        assert lines[1] == "Traceback (most recent call last):"
        assert lines[-1] == "ValueError: token=***"


class TestStartLogging:
    def test_a_second_start_replaces_the_first(self, root: logging.Logger) -> None:
        first, second = io.StringIO(), io.StringIO()
        start_logging(stream=first)

        start_logging(stream=second)
        logging.getLogger("queueyard.queen").info("hello")

        assert first.getvalue() == ""
        assert second.getvalue().endswith(" info queueyard.queen hello\n")

    @pytest.mark.parametrize(("verbose", "lines"), [(False, 1), (True, 2)])
    def test_details_are_for_those_who_ask(self, root: logging.Logger, verbose: bool, lines: int) -> None:
        stream = io.StringIO()
        start_logging(verbose=verbose, stream=stream)

        root.debug("detail")
        root.info("news")

        assert len(stream.getvalue().splitlines()) == lines

    def test_without_a_stream_it_is_stderr(self, root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
        start_logging()

        root.info("hello")

        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith(" info queueyard hello\n")
