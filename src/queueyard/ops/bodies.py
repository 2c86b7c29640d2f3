"""Request bodies: read within a time and a size, decompressed within a size.

A body that is refused for its size is still read and thrown away, up to a bound: a server that hangs up in the middle
of it would leave the client with a broken connection instead of an answer.
"""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING
import zlib

from queueyard.ops.problems import Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

ENCODINGS = ("gzip", "zstd")
#: so many times the limit is thrown away before the connection is
_THROWN_AWAY_TIMES = 8
_MEDIA_TYPE = "application/json"
#: one is usual; each costs a copy of all that is behind it, so ten million bytes of empty ones would take minutes
_MOST_GZIP_MEMBERS = 64


class Budget:
    """Bytes of bodies that are held at once, over all connections."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def take(self, count: int) -> None:
        """Problem 503 if that would be too many."""
        if self._held + count > self._most:
            raise Problem("overloaded", "too many bytes are under way", retry_after_s=1)
        self._held += count

    def give_back(self, count: int) -> None:
        self._held -= count


async def read_body(
    chunks: AsyncIterator[bytes],
    headers: Mapping[str, str],
    *,
    most: int,
    timeout_s: float,
    budget: Budget,
    on_nearly_whole: Callable[[bytes], None] = lambda _: None,
) -> bytes:
    """The body as it was sent. Problem 400, 408, 413, 415 or 503 if it is not to be taken.

    `on_nearly_whole` gets the body when it lacks nothing but its last byte, if there is such a moment.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding_of(headers)
    declared = _declared_length(headers)
    held = 0
    parts: list[bytes] = []
    refused: Problem | None = None
    if media_type != _MEDIA_TYPE:
        refused = Problem("unsupported_media_type", f"not {media_type or 'nothing'}")
    elif declared is not None and declared > most:
        refused = _too_large(declared, most)
    received = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in chunks:
                received += len(chunk)
                if refused is None and received > most:
                    refused, parts = _too_large(received, most), []
                if refused is None:
                    budget.take(len(chunk))
                    held += len(chunk)
                    parts.append(chunk)
                    if received + 1 == declared:
                        on_nearly_whole(b"".join(parts))
                elif received > most * _THROWN_AWAY_TIMES:
                    break
    except TimeoutError:
        raise Problem("body_timeout", f"not within {timeout_s:g} s") from None
    finally:
        budget.give_back(held)
    if refused is not None:
        raise refused
    return b"".join(parts)


def encoding_of(headers: Mapping[str, str]) -> str | None:
    """How the body is compressed; None: not at all. Problem 415 for what we do not know."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in {"", "identity"}:
        return None
    if encoding not in ENCODINGS:
        raise Problem("unsupported_encoding", f"not {encoding[:40]!r}, but {' or '.join(ENCODINGS)}")
    return encoding


def decompressed(body: bytes, encoding: str | None, most: int) -> bytes:
    """The body as it was meant. Problem 413 as soon as it grows beyond `most`: a bomb is never unpacked."""
    if encoding is None:
        return body
    unpacked = _gunzipped(body, most) if encoding == "gzip" else _unzstd(body, most)
    if len(unpacked) > most:
        raise Problem("body_too_large", f"more than {most} bytes after decompression", maxDecompressedBytes=most)
    return unpacked


def _gunzipped(body: bytes, most: int) -> bytes:
    unpacked, rest, members = b"", body, 0
    try:
        while rest and len(unpacked) <= most:
            members += 1
            if members > _MOST_GZIP_MEMBERS:
                raise Problem("malformed_encoding", f"more than {_MOST_GZIP_MEMBERS} gzip members")
            member = zlib.decompressobj(wbits=31)
            unpacked += member.decompress(rest, most + 1 - len(unpacked))
            if not member.eof and len(unpacked) <= most:
                raise Problem("malformed_encoding", "the gzip stream is cut")
            rest = member.unused_data
    except zlib.error as fault:
        raise Problem("malformed_encoding", str(fault)) from fault
    return unpacked


def _unzstd(body: bytes, most: int) -> bytes:
    import zstandard  # noqa: PLC0415  few clients use it

    try:
        # The window is what a hostile stream makes us allocate before the first byte comes out.
        reader = zstandard.ZstdDecompressor(max_window_size=8 << 20).stream_reader(
            BytesIO(body), read_across_frames=True
        )
        unpacked = reader.read(most + 1)
    except (zstandard.ZstdError, MemoryError) as fault:
        raise Problem("malformed_encoding", str(fault)) from fault
    if body and not unpacked:
        raise Problem("malformed_encoding", "the zstd stream is cut")
    return unpacked


def _declared_length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Problem("malformed_header", "Content-Length is not a number")
    return int(text)


def _too_large(size: int, most: int) -> Problem:
    return Problem("body_too_large", f"{size} bytes, at most {most}", maxBodyBytes=most)
