"""What JSON can hold gets through and comes back as its type; the rest is named by its path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
import json
import math
from typing import Any, TypedDict

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from queueyard.panqueue.errors import BadPayload, NotSerializable, PayloadTooLarge
from queueyard.panqueue.payloads import Codec

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain_json = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


class Colour(IntEnum):
    RED = 1


class Price(msgspec.Struct):
    amount: float
    tags: list[str] = []


@dataclass
class Basket:
    prices: list[Price]


class Row(TypedDict):
    price: float


@given(plain_json)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    codec: Codec[Any] = Codec()

    assert codec.decode(codec.encode(value)) == value


@given(plain_json)
def test_the_text_is_what_the_public_implementation_would_read(value: Any) -> None:
    text = Codec[Any]().encode(value)

    assert json.loads(text) == value
    assert text == text.strip()


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (Price, Price(math.nan), "payload"),
        (Basket, Basket([Price(1.0), Price(math.inf)]), "payload"),
        (Row, {"price": math.nan}, "payload.price"),
        (list[float], [1.0, math.nan], "payload[1]"),
    ],
)
def test_a_number_that_json_has_not_is_found_within_types_too(kind: Any, value: Any, path: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        Codec(kind).encode(value)

    assert caught.value.path.startswith(path)


def test_a_type_without_floats_is_not_walked_through() -> None:
    class Plain(msgspec.Struct):
        name: str
        number: int

    assert Codec(Plain)._must_look is False
    assert Codec(Price)._must_look is True
    assert Codec[Any]()._must_look is True


def test_a_tuple_is_an_array_and_an_int_enum_its_number() -> None:
    assert Codec[Any]().encode({"a": (1, 2), "b": Colour.RED}) == b'{"a":[1,2],"b":1}'


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(NotSerializable):
        Codec[Any]().encode("\ud800")


def test_something_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(NotSerializable, match="deeper than"):
        Codec[Any]().encode(loop)


def test_the_size_is_that_of_the_text() -> None:
    codec: Codec[Any] = Codec(max_bytes=6)

    assert codec.encode("żó") == '"żó"'.encode()
    with pytest.raises(PayloadTooLarge, match="8 bytes"):
        codec.encode("żół")


@pytest.mark.parametrize("text", [b"", b"{", b"nan", b'"\xff"', b'{"amount": "1"}'])
def test_what_is_not_of_the_type_is_told(text: bytes) -> None:
    with pytest.raises(BadPayload, match="payload cannot be understood"):
        Codec(Price).decode(text)
