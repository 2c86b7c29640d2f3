"""Server paths: which texts are one, and when two of them are the same."""

from __future__ import annotations

import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as some
import pytest

from queueyard.kernel.errors import UnsafePath
from queueyard.kernel.paths import safe_segment
from queueyard.ops.errors import BadServerPath
from queueyard.ops.names import RESERVED, folders_of, path_key, server_path

texts = some.text(alphabet=some.characters(codec="utf-8") | some.sampled_from("./\\:~ aAß"), max_size=30)


@given(texts)
def test_what_is_accepted_has_safe_names_only_and_one_spelling(text: str) -> None:
    try:
        path = server_path(text)
    except BadServerPath:
        return

    assert path == unicodedata.normalize("NFC", text)
    assert server_path(path) == path
    for segment in path.split("/"):
        assert safe_segment(segment) == segment
        assert segment.casefold() not in RESERVED


plain = some.from_regex(r"[a-zA-Z0-9_.\-]{0,6}(/[a-zA-Z0-9_.\-]{0,6}){0,3}", fullmatch=True)


@given(plain | some.sampled_from(["con", "a/NUL.txt", "com1/x", "lpt9", "auxiliary", "a/.git/b", "a//b", "a/", "."]))
def test_the_fast_way_decides_as_the_long_one(text: str) -> None:
    def is_safe() -> bool:
        try:
            return all(safe_segment(one).casefold() not in RESERVED for one in text.split("/"))
        except UnsafePath:
            return False

    try:
        server_path(text)
        accepted = True
    except BadServerPath:
        accepted = False

    assert accepted == is_safe()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad_path"),
        ("/etc/passwd", "bad_path"),
        ("../up", "bad_path"),
        ("a/../b", "bad_path"),
        ("a//b", "bad_path"),
        ("a/", "bad_path"),
        ("a\\b", "bad_path"),
        ("C:/x", "bad_path"),
        ("a/nul", "bad_path"),
        ("a\0b", "bad_path"),
        ("a\nb", "bad_path"),
        ("trailing.", "bad_path"),
        (".git/hooks/post-checkout", "reserved_path"),
        ("sub/.GIT/config", "reserved_path"),
        (".jolli/ops.toml", "reserved_path"),
        ("x" * 1025, "path_too_long"),
        ("ü" * 513, "path_too_long"),
    ],
)
def test_each_refusal_has_the_code_of_the_answer(text: str, code: str) -> None:
    with pytest.raises(BadServerPath) as refused:
        server_path(text)

    assert refused.value.code == code


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/B.md", "A/b.md"), ("straße", "STRASSE"), ("caf\u00e9", "CAFE\u0301"), ("ǅ", "ǆ")],
)
def test_paths_that_differ_only_in_case_or_spelling_have_one_key(one: str, other: str) -> None:
    assert path_key(one) == path_key(other)


@given(some.text(max_size=20))
def test_the_key_of_a_key_is_itself(text: str) -> None:
    assert path_key(path_key(text)) == path_key(text)


@given(some.text(max_size=20))
def test_composed_and_decomposed_spellings_have_one_key(text: str) -> None:
    assert path_key(unicodedata.normalize("NFC", text)) == path_key(unicodedata.normalize("NFD", text))


@given(some.lists(some.text(alphabet="abc", min_size=1, max_size=3), min_size=1, max_size=5))
def test_the_folders_of_a_path_are_all_its_beginnings(parts: list[str]) -> None:
    assume(parts)

    folders = folders_of("/".join(parts))

    assert list(folders) == ["/".join(parts[:depth]) for depth in range(1, len(parts))]
