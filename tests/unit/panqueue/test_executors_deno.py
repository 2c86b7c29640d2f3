"""Handlers in Deno: they work, they are held by Deno's permissions, and what Deno cannot hold is refused."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from executor_crews import QUEUE, crew_of, held, until_there
from queueyard.panqueue.errors import Unrecoverable
from queueyard.panqueue.executors import Deno, Policy, PoolSettings
from queueyard.panqueue.executors.deno import find_deno
from queueyard.panqueue.executors.errors import BadHandler, ChildDied, HandlerFailed, PolicyRefused, StartFailed
from sandbox_driver import a_world
from servers import eventually, in_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROBES = """
const probes = {
  add: (world, { a, b }) => a + b,
  fail: () => { throw new Error("not today"); },
  give_up: () => { throw Object.assign(new Error("never again"), { unrecoverable: true }); },
  read_allowed: (world) => Deno.readTextFile(world.allowed_file),
  write_allowed: async (world) => { await Deno.writeTextFile(world.out + "/result", "done"); return "4"; },
  connect_as_allowed: (world) => greet({ hostname: "127.0.0.1", port: world.port }),
  read_outside: (world) => Deno.readTextFile(world.secret),
  read_through_a_link: (world) => Deno.readTextFile(world.planted_link),
  write_outside: async (world) => { await Deno.writeTextFile(world.outside_file, "mine"); return 4; },
  make_a_link: async (world) => { await Deno.symlink(world.secret, world.out + "/link"); return 1; },
  connect_to_another_port: (world) => greet({ hostname: "127.0.0.1", port: world.other_port }),
  connect_to_another_host: (world) => greet({ hostname: "127.0.0.2", port: world.port }),
  connect_to_a_unix_socket: (world) => greet({ transport: "unix", path: world.unix }),
  read_environment: () => Deno.env.toObject(),
  read_the_parents_environment: (world) => Deno.readTextFile(`/proc/${world.parent}/environ`),
  signal_the_parent: (world) => { Deno.kill(world.parent, "SIGCONT"); return 1; },
  start_a_program: async () => (await new Deno.Command("/bin/true").output()).code,
  ask_for_more: async () => (await Deno.permissions.request({ name: "read" })).state === "granted" ? 1 : refuse(),
  spin: () => { for (;;); },
  wait: async (world, { place }, job) => {
    await Deno.writeTextFile(place + ".new", String(Deno.pid));
    await Deno.rename(place + ".new", place);
    await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
    return "told";
  },
};
function refuse() { throw new Error("refused"); }
async function greet(address) {
  const line = await Deno.connect(address);
  const said = new Uint8Array(5);
  await line.read(said);
  line.close();
  return new TextDecoder().decode(said);
}
export default (job) => probes[job.payload.probe](job.payload.world, job.payload, job);
"""
_REFUSED = (
    *("read_outside", "write_outside", "make_a_link", "connect_to_another_port"),
    *("connect_to_another_host", "connect_to_a_unix_socket", "read_environment", "read_the_parents_environment"),
    *("signal_the_parent", "start_a_program", "ask_for_more"),
)


@pytest.fixture(autouse=True)
def _needs_deno() -> None:
    if find_deno() is None:
        reason = "Deno is not here: pip install deno"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "handler.ts").write_text(_PROBES)
    return str(tmp_path / "handler.ts")


@pytest.fixture
def world() -> Iterator[dict[str, Any]]:
    with a_world() as made:
        yield made


@in_loop
async def test_a_script_runs_jobs_and_its_errors_are_the_reason(script: str) -> None:
    async with crew_of(deno := Deno(script, Policy()), deno) as crew:
        assert await crew.run(held({"probe": "add", "a": 2, "b": 3})) == 5
        with pytest.raises(HandlerFailed, match="not today"):
            await crew.run(held({"probe": "fail"}))
        with pytest.raises(Unrecoverable, match="never again"):
            await crew.run(held({"probe": "give_up"}))

        assert crew.pool.started == 1


@in_loop
async def test_deno_allows_what_the_policy_names_and_refuses_the_rest(script: str, world: dict[str, Any]) -> None:
    folder = str(Path(world["allowed_file"]).parent)
    policy = Policy(read=(folder,), write=(world["out"],), net=(f"127.0.0.1:{world['port']}",))
    async with crew_of(deno := Deno(script, policy), deno) as crew:
        for probe, answer in (("read_allowed", "allowed"), ("write_allowed", "4"), ("connect_as_allowed", "hello")):
            assert await crew.run(held({"probe": probe, "world": world})) == answer
        for probe in _REFUSED:
            with pytest.raises(HandlerFailed, match=r"[Rr]equires .* (access|permissions)|refused"):
                await crew.run(held({"probe": probe, "world": world}))


@in_loop
async def test_deno_follows_a_link_that_was_there_and_says_so(script: str, world: dict[str, Any]) -> None:
    policy = Policy(read=(str(Path(world["allowed_file"]).parent),))
    async with crew_of(deno := Deno(script, policy), deno) as crew:
        assert await crew.run(held({"probe": "read_through_a_link", "world": world})) == "secret"

    notes = {one.what: one.note or "" for one in deno.explain()}
    assert "links that are there already are followed" in notes["read"]


@in_loop
async def test_a_script_that_spins_is_killed_when_its_processor_time_is_over(script: str) -> None:
    async with crew_of(deno := Deno(script, Policy(cpu_s=1)), deno) as crew:
        with pytest.raises(ChildDied, match="SIGKILL"):
            await crew.run(held({"probe": "spin"}))


@pytest.mark.parametrize(("probe", "children"), [("wait", 1), ("spin", 0)])
@in_loop
async def test_a_cancelled_script_is_told_and_then_killed(
    script: str, tmp_path: Path, probe: str, children: int
) -> None:
    settings = PoolSettings(cancel_grace_s=5 if probe == "wait" else 0.2, term_grace_s=0.2)
    async with crew_of(deno := Deno(script, Policy(write=(str(tmp_path),)), settings), deno) as crew:
        running = asyncio.ensure_future(crew.run(held({"probe": probe, "place": str(tmp_path / "here")})))
        if probe == "wait":
            await until_there(tmp_path / "here")
        else:
            await eventually(lambda: len(crew.pool.pids) == 1)

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert len(crew.pool.pids) == children


@in_loop
async def test_a_script_that_is_none_fails_to_start(tmp_path: Path) -> None:
    (tmp_path / "bad.js").write_text("export const other = 1;")
    async with crew_of(deno := Deno(str(tmp_path / "bad.js"), Policy()), deno) as crew:
        with pytest.raises(StartFailed, match="default export is no function"):
            await crew.run(held())


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (Policy(net=("*:443",)), "net: Deno cannot allow a port of every host"),
        (Policy(run=("true",), processes=1), "run: what a program does is not limited by Deno"),
    ],
)
@in_loop
async def test_what_deno_cannot_hold_is_refused(script: str, policy: Policy, what: str) -> None:
    deno = Deno(script, policy)

    with pytest.raises(PolicyRefused, match=what.replace("*", r"\*")):
        deno.crew(QUEUE, deno)


@in_loop
async def test_a_script_that_is_missing_is_refused_and_one_cannot_be_called_inline(script: str) -> None:
    missing = Deno("/no/such/script.ts", Policy())

    with pytest.raises(BadHandler, match="there is no script"):
        missing.crew(QUEUE, missing)
    with pytest.raises(BadHandler, match="runs in Deno only"):
        Deno(script, Policy())(None)
