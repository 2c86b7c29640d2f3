"""No text that is accepted ever leaves its root: by properties over nasty texts, on real folders with real links."""

from __future__ import annotations

import os
from pathlib import Path, PureWindowsPath
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.errors import UnsafePath
from queueyard.kernel.paths import safe_join, safe_segment

NASTY_SEGMENTS = (
    "..",
    ".",
    "",
    "...",
    ".. ",
    "..\\..",
    "\\\\server\\share",
    "C:",
    "c:\\windows",
    "a:b",
    "\x00",
    "a\x00b",
    "a\n",
    "name.",
    "name ",
    "~",
    "-rf",
    "NUL",
    "con.txt",
    "COM1",
    "\u202e",
    "cafe\u0301",
    "caf\u00e9",
    "\uff0e\uff0e",
    "\uff0f",
    "\u2024\u2024",
    "\udcff",
    "%2e%2e",
    "x" * 255,
    "x" * 256,
    "\u00fc" * 128,
    # planted in the fixture `planted`
    "inner",
    "to_inner",
    "to_outside",
    "to_parent",
    "to_root_of_all",
    "dangling_outside",
    "to_secret",
    "loop",
)
WINDOWS_DEVICES = {"CON", "PRN", "AUX", "NUL"} | {f"{port}{n}" for port in ("COM", "LPT") for n in range(10)}
SEGMENT = st.one_of(st.sampled_from(NASTY_SEGMENTS), st.text(max_size=6), st.text(alphabet="./\\: \x00aC", max_size=6))
ANY_TEXT = st.one_of(
    st.lists(SEGMENT, max_size=5).map("/".join), st.lists(SEGMENT, max_size=3).map(lambda parts: "/" + "/".join(parts))
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with links on the way: some stay inside, most lead out."""
    home = tmp_path_factory.mktemp("home")
    root = home / "root"
    (root / "inner").mkdir(parents=True)
    (home / "outside").mkdir()
    (home / "outside" / "secret").write_text("untouched")
    (root / "to_inner").symlink_to("inner")
    (root / "to_outside").symlink_to(home / "outside")
    (root / "inner" / "to_parent").symlink_to("../..")
    (root / "to_parent").symlink_to("..")
    (root / "to_root_of_all").symlink_to("/")
    (root / "dangling_outside").symlink_to("../not/there")
    (root / "to_secret").symlink_to("../outside/secret")
    (root / "loop").symlink_to("loop")
    return root


@given(text=ANY_TEXT)
@example(text="inner/to_parent/outside/secret")
@example(text="to_inner/../../outside")
@example(text="to_inner/new")
@example(text="loop/x")
def test_no_accepted_text_leaves_its_root(planted: Path, text: str) -> None:
    try:
        joined = safe_join(planted, text)
    except UnsafePath:
        return

    assert Path(os.path.realpath(joined)).is_relative_to(planted.resolve())
    assert Path(os.path.normpath(joined)).is_relative_to(planted)
    assert joined != planted


@given(text=ANY_TEXT)
def test_no_accepted_text_leaves_its_root_on_another_platform_either(planted: Path, text: str) -> None:
    try:
        relative = str(safe_join(planted, text).relative_to(planted))
    except UnsafePath:
        return

    there = PureWindowsPath(relative)
    assert (there.drive, there.root) == ("", "")
    assert not WINDOWS_DEVICES & {part.partition(".")[0].upper() for part in there.parts}
    assert not {".", ".."} & set(there.parts)
    assert len(there.parts) == len(relative.split("/"))
    assert not any(part.endswith((".", " ")) for part in there.parts)
    assert relative.encode("utf-8").isascii() or unicodedata.is_normalized("NFC", relative)


@given(text=SEGMENT)
def test_an_accepted_name_is_one_name_that_a_disk_takes(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        name = safe_segment(text)
    except UnsafePath:
        return
    folder = tmp_path_factory.mktemp("names")

    (folder / name).write_bytes(b"")

    assert [path.name for path in folder.iterdir()] == [name]
    assert safe_segment(name) == name


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "is empty"),
        (".", "is a step, not a name"),
        ("..", "is a step, not a name"),
        ("a/b", "holds a slash or backslash"),
        ("a\\b", "holds a slash or backslash"),
        ("a\x00b", "holds control characters"),
        ("a\x1b[31m", "holds control characters"),
        ("\udcff", "holds control characters"),
        ("a.", "ends with a dot or a space"),
        ("a ", "ends with a dot or a space"),
        ("C:", "starts with a drive letter"),
        ("c:x", "starts with a drive letter"),
        ("nul", "is the name of a device"),
        ("Com1.txt", "is the name of a device"),
        ("ü" * 128, "is longer than 255 bytes"),
    ],
)
def test_a_refusal_says_which_rule_is_broken(text: str, rule: str) -> None:
    with pytest.raises(UnsafePath) as caught:
        safe_segment(text)

    assert str(caught.value) == f"not a safe file name: {text!r} {rule}"
    assert caught.value.hint == "Use letters, digits, '-', '_' and '.' within."


@pytest.mark.parametrize("text", ["a", "a.b", ".hidden", "a b", "-", "Ünïcode", "日本", "x" * 255, "console", "..a"])
def test_ordinary_names_are_kept_as_they_are(text: str) -> None:
    assert safe_segment(text) == text


def test_both_spellings_of_one_name_lead_to_one_file(tmp_path: Path) -> None:
    composed = safe_join(tmp_path, "caf\u00e9/x")
    decomposed = safe_join(tmp_path, "cafe\u0301/x")

    assert composed == decomposed


@pytest.mark.parametrize("text", ["/etc/passwd", "/", "//a"])
def test_an_absolute_path_is_refused_with_the_root_to_be_relative_to(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnsafePath, match="not a relative path") as caught:
        safe_join(tmp_path, text)

    assert caught.value.hint == f"Write it relative to {tmp_path}."


@pytest.mark.parametrize("text", ["a//b", "a/", "a/../b", "a/./b", ""])
def test_a_path_with_an_empty_name_or_a_step_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnsafePath):
        safe_join(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["to_outside/x", "to_outside", "inner/to_parent/x", "to_parent", "to_secret", "dangling_outside"]
)
def test_a_link_that_leads_out_is_refused(planted: Path, text: str) -> None:
    with pytest.raises(UnsafePath):
        safe_join(planted, text)

    assert (planted.parent / "outside" / "secret").read_text() == "untouched"


def test_a_link_that_stays_inside_is_followed(planted: Path) -> None:
    assert safe_join(planted, "to_inner/x") == planted / "to_inner" / "x"


def test_a_root_that_is_a_link_itself_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert safe_join(tmp_path / "link", "a/b") == tmp_path / "link" / "a" / "b"


def test_a_path_longer_than_any_disk_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafePath, match="path too long"):
        safe_join(tmp_path, "/".join(["x" * 200] * 21))
