"""Commands and replies on the wire: the plain reader and writer agree with the C library, byte by byte."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.panqueue.wire import INCOMPLETE, PlainReader, Refusal, pack

hiredis = pytest.importorskip("hiredis")

words = st.lists(
    st.binary(max_size=20) | st.integers(-(10**18), 10**18) | st.text(st.characters(exclude_categories=["Cs"])),
    min_size=1,
)
line = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=10)
simple = st.tuples(st.sampled_from("+-"), line)
replies = st.recursive(
    st.none() | st.integers(-(2**60), 2**60) | st.binary(max_size=20) | simple,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


def as_sent(reply: Any) -> bytes:
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, tuple):
        return f"{reply[0]}{reply[1]}\r\n".encode()
    return b"*%d\r\n" % len(reply) + b"".join(map(as_sent, reply))


def comparable(reply: Any) -> Any:
    if isinstance(reply, list):
        return [comparable(one) for one in reply]
    return ("refused", str(reply)) if isinstance(reply, Exception) else reply


@given(words)
def test_a_command_is_packed_as_the_c_library_packs_it(command: list[Any]) -> None:
    assert pack(command) == hiredis.pack_command(tuple(command))


@given(st.lists(replies, max_size=4), st.data())
def test_replies_that_arrive_in_pieces_are_read_as_the_c_library_reads_them(
    sent: list[Any], data: st.DataObject
) -> None:
    stream = b"".join(map(as_sent, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    plain, fast = PlainReader(), hiredis.Reader(replyError=Refusal, notEnoughData=INCOMPLETE)
    got: list[list[Any]] = [[], []]

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        for reader, found in zip((plain, fast), got, strict=True):
            reader.feed(stream[start:end])
            while (reply := reader.gets()) is not INCOMPLETE:
                found.append(comparable(reply))

    assert got[0] == got[1]
    assert len(got[0]) == len(sent)


def test_a_missing_array_is_none() -> None:
    reader = PlainReader()
    reader.feed(b"*-1\r\n")

    assert reader.gets() is None


def test_what_is_no_reply_is_refused() -> None:
    reader = PlainReader()
    reader.feed(b"HTTP/1.1 400 Bad Request\r\n")

    with pytest.raises(Refusal, match="PROTOCOL"):
        reader.gets()


def test_a_refusal_has_a_code() -> None:
    assert Refusal("NOSCRIPT No matching script").code == "NOSCRIPT"
