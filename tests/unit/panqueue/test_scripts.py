"""The Lua files: each headed by its keys, arguments and answers, and all of them as the Python side calls them."""

from __future__ import annotations

from pathlib import Path
import re

import pytest

from queueyard.panqueue import scripts
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from servers import Server, server

__all__ = ["server"]

LUA = Path(scripts.__file__).parent / "lua"
SPELLED = {
    "k_lists": "prefix of key lists",
    "k_active": "k:active",
    "k_ready": "k:ready",
    "k_limits": "k:limits",
    "dedups": "prefix of dedup keys",
    "logs": "prefix of logs",
    "k_rates": "prefix of k:rate",
    "k_limited": "k:limited",
    "notify": "notify (channel)",
    "finished": "finished (channel)",
}


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
def test_a_script_says_what_it_is_called_with_and_what_it_answers(script: scripts.Script) -> None:
    source = (LUA / f"{script.name}.lua").read_text(encoding="utf-8")
    header = source.partition("\nlocal ")[0]

    assert re.match(r"#!lua( flags=[a-z,-]+)?\n-- [A-Z]", source)
    assert all(f"\n-- {word}" in header for word in ("KEYS ", "ARGV ", "RETURN "))
    keys = re.search(r"-- KEYS\s+(.*?)\n-- ARGV", header, re.DOTALL)
    assert keys is not None
    told = " ".join(re.sub(r"\n--\s+", "  ", keys[1]).split())
    for number, name in enumerate(script.keys, 1):
        if name != "index":
            assert f"{number} {SPELLED.get(name, name)}" in told or (
                name == "schedule" and f"{number} prefix of schedules" in told
            )


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
def test_the_server_compiles_it(server: Server, script: scripts.Script) -> None:
    line = Line(parse_address(server.url))

    sha = line.call("SCRIPT", "LOAD", script.text)
    line.close()

    assert sha.decode() == script.sha


def test_no_file_is_left_out() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} == {script.name for script in scripts.ALL}
    included = {name for script in scripts.ALL for name in re.findall(r"-- include (\S+)", _source(script))}
    assert included == {f"parts/{path.name}" for path in LUA.glob("parts/*.lua")}


def test_only_one_part_asks_for_the_time() -> None:
    asking = [path.name for path in LUA.rglob("*.lua") if "'TIME'" in path.read_text(encoding="utf-8")]

    assert asking == ["time.lua"]


def test_what_only_adds_is_refused_by_a_full_server_and_the_rest_is_not() -> None:
    refused = {script.name for script in scripts.ALL if script.text.startswith("#!lua\n")}

    assert refused == {"add", "add_keyed", "add_placed", "schedule_fire", "schedule_put"}


def _source(script: scripts.Script) -> str:
    return (LUA / f"{script.name}.lua").read_text(encoding="utf-8")
