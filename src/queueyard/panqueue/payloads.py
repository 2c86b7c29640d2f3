"""From values to the JSON text of a payload or result, and back into the type that the queue was declared with.

Only what JSON can hold gets through, and what does not is named by its path (`payload.items[2].price`). Nothing here
knows Redis.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from queueyard.panqueue.errors import BadPayload, NotSerializable, PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

DEEPEST = 64
_PLAIN = frozenset({str, int, bool, type(None)})
_CONTAINERS = (dict, list, tuple)

# One encoder for all: it keeps no state between calls.
_ENCODER = msgspec.json.Encoder()


class Codec(Generic[_T]):
    """Encodes and decodes the payloads, or the results, of one queue.

    Without a type every value that JSON has is taken, and comes back as plain Python. With one (a msgspec Struct, a
    dataclass, a TypedDict, a list of these, ...) values of that type are taken, and come back as that type.
    """

    def __init__(self, kind: type[_T] | None = None, *, name: str = "payload", max_bytes: int | None = None) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._typed = kind is not None and kind is not Any
        self._must_look = not self._typed or _may_hold_floats(kind)
        self._decoder: msgspec.json.Decoder[Any] = (
            msgspec.json.Decoder(kind) if self._typed and kind is not None else msgspec.json.Decoder()
        )
        #: the fast way in, for those who handle its errors themselves: msgspec.MsgspecError, UnicodeDecodeError
        self.decode_raw: Callable[[bytes], _T] = self._decoder.decode

    def encode(self, value: _T) -> bytes:
        """Compact JSON. NotSerializable names the path of what JSON cannot hold; PayloadTooLarge."""
        if self._must_look:
            self._refuse_what_json_has_not(value)
        try:
            text = _ENCODER.encode(value)
        except (TypeError, ValueError, RecursionError) as fault:
            raise NotSerializable(
                f"{self._name}: {fault}",
                path=self._name,
                hint="A payload is JSON: texts, numbers, booleans, null, lists, and objects with texts as names.",
            ) from fault
        if self._max_bytes is not None and len(text) > self._max_bytes:
            raise PayloadTooLarge(
                f"the {self._name} is {len(text):,} bytes long, and the queue takes {self._max_bytes:,} at most",
                hint="Store the large part elsewhere and put its name into the job, or raise max_payload_bytes.",
            )
        return text

    def decode(self, text: bytes) -> _T:
        """The value. BadPayload if the text is not JSON or not of the type."""
        try:
            return self.decode_raw(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise BadPayload(f"the {self._name} cannot be understood: {fault}") from fault

    def _refuse_what_json_has_not(self, value: Any) -> None:
        if type(value) is dict:
            # Most payloads are flat: then there is nothing to walk through.
            for name, part in value.items():
                if type(part) not in _PLAIN or type(name) is not str:
                    break
            else:
                return
        if type(value) not in _PLAIN:
            _look(value, self._name, 0, typed=self._typed)


def _look(value: Any, path: str, depth: int, *, typed: bool) -> None:
    """Walk through a value and refuse the first part that JSON cannot hold."""
    if type(value) is float:
        if not math.isfinite(value):
            raise _refused(path, f"{value} is no JSON number")
    elif depth >= DEEPEST:
        raise _refused(path, f"nested deeper than {DEEPEST} levels")
    elif isinstance(value, _CONTAINERS):
        for step, part in _parts(value, path):
            if type(part) not in _PLAIN:
                _look(part, path + step, depth + 1, typed=typed)
    elif typed and not isinstance(value, str | int):
        _look(_plain(value, path), path, depth + 1, typed=typed)
    elif not isinstance(value, str | int | float):
        # Subclasses of the plain types (an IntEnum) are written as what they are.
        raise _refused(path, f"{type(value).__module__}.{type(value).__qualname__} is no JSON type")


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(step, part) of an object or array. NotSerializable for a name that is no text."""
    if not isinstance(value, dict):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
        return
    for name, part in value.items():
        if not isinstance(name, str):
            raise _refused(f"{path}[{name!r}]", f"names must be texts, not {type(name).__name__}")
        yield f".{name}" if name.isidentifier() else f"[{name!r}]", part


def _plain(value: Any, path: str) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError) as fault:
        raise _refused(path, str(fault)) from fault


def _refused(path: str, why: str) -> NotSerializable:
    return NotSerializable(
        f"{path}: {why}",
        path=path,
        hint="A payload is JSON: texts, numbers, booleans, null, lists, and objects with texts as names.",
    )


def _may_hold_floats(kind: Any) -> bool:
    """Whether a value of that type could hold a number that JSON has not (nan, infinity), or anything at all."""
    seen: set[int] = set()

    def look(info: Any) -> bool:
        if id(info) in seen:
            return False
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.FloatType | msgspec.inspect.AnyType | msgspec.inspect.CustomType):
            return True
        parts: list[Any] = []
        for name in getattr(info, "__struct_fields__", ()):
            part = getattr(info, name)
            parts += part if isinstance(part, tuple) else [part]
        return any(look(part) for part in parts if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field))

    return look(msgspec.inspect.type_info(kind))
