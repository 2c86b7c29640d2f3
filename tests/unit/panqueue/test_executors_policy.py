"""What a policy may say, which part of a machine holds it, and what is refused where nothing does; without a child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queueyard.panqueue.executors.bubblewrap import wrap
from queueyard.panqueue.executors.errors import BadPolicy, PolicyRefused
from queueyard.panqueue.executors.guarantees import (
    Guarantee,
    level,
    of_inline,
    of_sandbox,
    of_subprocess,
    refuse_what_is_not_held,
)
from queueyard.panqueue.executors.machine import Machine
from queueyard.panqueue.executors.policy import (
    NetRule,
    Policy,
    check_policy,
    child_environment,
    net_rules,
    read_policy,
    without_server,
)

if TYPE_CHECKING:
    from pathlib import Path

FULL = Machine(bubblewrap="/usr/bin/bwrap", landlock=7, seccomp=True, is_root=False)
NO_BUBBLEWRAP = msgspec.structs.replace(FULL, bubblewrap=None, trouble="not installed")
OLD_KERNEL = msgspec.structs.replace(NO_BUBBLEWRAP, landlock=2)
OLDER_LANDLOCK = msgspec.structs.replace(NO_BUBBLEWRAP, landlock=3)
NO_SECCOMP = msgspec.structs.replace(FULL, seccomp=False)


def test_a_policy_is_read_from_json() -> None:
    assert read_policy('{"read": ["/srv"], "net": ["a:1"], "cpu_s": 2}') == Policy(
        read=("/srv",), net=("a:1",), cpu_s=2
    )


@pytest.mark.parametrize("text", ["", "[]", '{"reed": []}', '{"read": "/srv"}', '{"cpu_s": "many"}'])
def test_what_is_no_policy_is_refused_with_the_names_of_its_fields(text: str) -> None:
    with pytest.raises(BadPolicy, match="not a policy") as refused:
        read_policy(text)

    assert "memory_mb" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ({"read": ("/no/such/place",)}, "read: /no/such/place does not exist"),
        ({"write": ("relative",)}, "write: relative is not an absolute path"),
        ({"net": ("example.org",)}, "net: example.org does not end with a port"),
        ({"net": ("a:0",)}, "net: a:0 does not end with a port"),
        ({"net": ("a b:80",)}, "net: a b:80 has no host"),
        ({"net": (":80",)}, "net: :80 has no host"),
        ({"env": ("NOT-A-NAME",)}, "env: 'NOT-A-NAME'"),
        ({"env": ("REDIS_URL",)}, "env: REDIS_URL leads to the queue's server"),
        ({"run": ("no-such-program",), "processes": 1}, "run: there is no program no-such-program"),
        ({"run": ("sh",)}, "run: a program needs a process"),
        ({"processes": -1}, "processes: must be 0 or more"),
        ({"memory_mb": 1}, "memory_mb: must be 128 or more"),
        ({"cpu_s": 0}, "cpu_s: must be 1 or more"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(policy: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadPolicy) as refused:
        check_policy(Policy(**policy))

    assert fault in str(refused.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(BadPolicy) as refused:
        check_policy(Policy(read=("/no/such/place",), net=("a",), cpu_s=0))

    assert str(refused.value).count("\n  - ") == 3


def test_hosts_have_one_spelling() -> None:
    rules = net_rules(Policy(net=("API.Example.org.:443", "[::1]:80", "127.0.0.1:81", "*:82")))

    assert rules == [NetRule("api.example.org", 443), NetRule("::1", 80), NetRule("127.0.0.1", 81), NetRule("*", 82)]
    assert rules[0].allows("api.example.ORG", 443)
    assert rules[1].allows("0:0:0:0:0:0:0:1", 80)
    assert rules[3].allows("anywhere", 82)
    assert not rules[0].allows("api.example.org", 444)
    assert not rules[0].allows("evil-api.example.org", 443)
    assert not rules[0].allows("api.example.org.evil.org", 443)


def test_a_child_gets_the_variables_that_are_named_and_no_address_of_a_server(tmp_path: Path) -> None:
    environment = {"A": "1", "B": "2", "BROKER": "rediss://user:password@host", "C": "3"}

    seen = child_environment(Policy(env=("A", "BROKER", "MISSING"), write=(str(tmp_path),)), environment)

    assert seen == {"A": "1", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    assert without_server(environment).keys() == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (FULL, "namespaces"),
        (NO_BUBBLEWRAP, "landlock"),
        (OLDER_LANDLOCK, "landlock"),
        (OLD_KERNEL, "none"),
        (NO_SECCOMP, "none"),
    ],
)
def test_the_level_is_what_the_machine_can_do(machine: Machine, expected: str) -> None:
    assert level(machine) == expected


def test_a_full_machine_holds_every_line_of_a_full_policy() -> None:
    policy = Policy(net=("a:1",), env=("A",), run=("sh",), processes=2, cpu_s=1, read=("/usr",), write=("/tmp",))

    refuse_what_is_not_held(of_sandbox(policy, FULL))


@pytest.mark.parametrize(
    ("policy", "machine", "what"),
    [
        (Policy(net=("a:1",)), NO_BUBBLEWRAP, ["net"]),
        (Policy(net=("*:1",)), OLDER_LANDLOCK, ["net"]),
        (Policy(run=("sh",), processes=1), NO_BUBBLEWRAP, ["processes"]),
        (Policy(processes=1), msgspec.structs.replace(FULL, is_root=True), ["processes"]),
        (Policy(run=("sh",), processes=1), msgspec.structs.replace(FULL, landlock=0), ["run"]),
        (Policy(), OLD_KERNEL, ["read", "write", "net", "signals", "ptrace", "credentials"]),
    ],
)
def test_what_a_machine_cannot_hold_is_refused_by_name(policy: Policy, machine: Machine, what: list[str]) -> None:
    found = of_sandbox(policy, machine)

    assert [one.what for one in found if one.held_by is None] == what
    assert all(one.note for one in found if one.held_by is None), "a line that is not held says why"
    with pytest.raises(PolicyRefused) as refused:
        refuse_what_is_not_held(found)
    assert all(f"  - {name}: " in str(refused.value) for name in what)


@pytest.mark.parametrize("machine", [FULL, NO_BUBBLEWRAP])
def test_a_policy_of_ports_and_paths_holds_with_and_without_bubblewrap(machine: Machine) -> None:
    refuse_what_is_not_held(of_sandbox(Policy(read=("/usr",), net=("*:443",), cpu_s=1), machine))


def test_the_weaker_tiers_say_that_they_hold_little() -> None:
    plain = {one.what: one for one in of_subprocess(FULL)}
    assert plain["read"].held_by is None
    assert plain["credentials"].held_by == "Landlock"
    assert {one.what: one for one in of_subprocess(OLD_KERNEL)}["credentials"].held_by == "Landlock"
    blind = msgspec.structs.replace(OLD_KERNEL, landlock=0)
    assert {one.what: one for one in of_subprocess(blind)}["credentials"].held_by is None
    assert all(one.held_by is None for one in of_inline())


def test_guarantees_are_plain_data() -> None:
    (told,) = msgspec.json.decode(msgspec.json.encode(of_sandbox(Policy(), FULL)[:1]), type=list[Guarantee])

    assert told.what == "read"


def test_bubblewrap_shows_outer_folders_before_what_stands_in_them(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(inner)

    argv = wrap("/usr/bin/bwrap", ["true"], read=[str(tmp_path / "a"), str(link)], write=[str(inner)])

    binds = [tuple(argv[at : at + 3]) for at, word in enumerate(argv) if word in {"--bind", "--ro-bind"}]
    assert binds == [
        ("--ro-bind", str(tmp_path / "a"), str(tmp_path / "a")),
        ("--ro-bind", str(inner), str(link)),
        ("--bind", str(inner), str(inner)),
    ]
    assert argv[-2:] == ["--", "true"]
