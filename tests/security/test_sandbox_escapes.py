"""Nothing that a hostile handler tries gets it out of its sandbox, though each attempt succeeds without one.

All probes are tried by a driver process: as the user who runs the tests and, if that is root, as nobody; in every kind
of sandbox that can be made here.
"""

from __future__ import annotations

from functools import cache
import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from executor_crews import need
import sandbox_probes

_TESTS = Path(__file__).parents[1]
_NOBODY = 65_534
_TIMEOUT_S = 120
#: what the policy of the driver allows
_ALLOWED = {"read_allowed": "allowed", "write_allowed": "4", "connect_as_allowed": "hello"}
#: Landlock knows no hosts: the policy there is `*:port`, and one with a host is refused
_BY_HOST = {"connect_to_another_host", "tunnel_to_another_host"}

pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.fixture(params=["user", "nobody"])
def user(request: pytest.FixtureRequest) -> str:
    if request.param == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become nobody; the other half of these tests ran as an ordinary user")
    return str(request.param)


@pytest.fixture(params=["namespaces", "namespaces-alone", "landlock", "landlock-3"])
def level(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


@cache
def answers(user: str, level: str) -> dict[str, dict[str, str]]:
    """What the driver saw as this user in this kind of sandbox, inside and outside."""
    own = {} if user == "user" else {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    packages = [path for path in sys.path if Path(path).name == "site-packages"]
    done = subprocess.run(
        [_python_for(user), str(_TESTS / "sandbox_driver.py"), level],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(_TESTS.parent / "src"), str(_TESTS), *packages]),
            "REDIS_URL": "redis://:MARK@localhost",
            "BROKER": "rediss://user:MARK@localhost",
            "OTHER": "MARK",
        },
        cwd="/",
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        **own,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, dict[str, str]] = json.loads(done.stdout)
    return told


@cache
def _python_for(user: str) -> str:
    """A Python that the user can start: one below a home folder is out of reach for others."""
    if user == "user":
        return sys.executable
    for python in (sys.executable, "/usr/bin/python3"):
        tried = [python, "-c", "import sys; print(sys.version_info[:2])"]
        try:
            done = subprocess.run(
                tried, user=_NOBODY, group=_NOBODY, capture_output=True, text=True, cwd="/", check=False
            )
        except PermissionError:
            continue
        if done.stdout.strip() == str(tuple(sys.version_info[:2])):
            return python
    pytest.skip(f"nobody can start no Python {sys.version_info[:2]} here")


@pytest.mark.parametrize("probe", [name for name in sandbox_probes.PROBES if name not in _ALLOWED])
def test_a_probe_that_succeeds_outside_is_refused_inside(probe: str, user: str, level: str) -> None:
    told = answers(user, level)

    assert not told["control"][probe].startswith("refused"), f"the control failed: {told['control'][probe]}"
    if level == "landlock" and probe in _BY_HOST:
        assert told["inside"][probe] == "hello", "Landlock is known not to see hosts"
    else:
        assert told["inside"][probe].startswith("refused"), told["inside"][probe]


@pytest.mark.parametrize("probe", _ALLOWED)
def test_what_the_policy_allows_is_possible(probe: str, user: str, level: str) -> None:
    told = answers(user, level)["inside"][probe]

    # The policy for the oldest kernel names no port.
    assert (
        told.startswith("refused")
        if (probe, level) == ("connect_as_allowed", "landlock-3")
        else told == _ALLOWED[probe]
    )


def test_one_child_bore_all_attempts(user: str, level: str) -> None:
    assert answers(user, level)["inside"]["children"] == "1"
