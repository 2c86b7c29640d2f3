"""URLs, and what is made of them."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
import pytest

from queueyard.panqueue.address import Node, Topology, default_url, parse_address
from queueyard.panqueue.errors import BadAddress


@pytest.mark.parametrize(
    ("url", "nodes", "db"),
    [
        ("redis://localhost", [("localhost", 6379)], 0),
        ("redis://", [("localhost", 6379)], 0),
        ("valkey://10.0.0.1:7000/3", [("10.0.0.1", 7000)], 3),
        ("redis://host?db=4", [("host", 6379)], 4),
        ("redis://[::1]:7000", [("::1", 7000)], 0),
        ("redis://[2001:db8::1]", [("2001:db8::1", 6379)], 0),
        ("redis+cluster://a:1,b:2,c", [("a", 1), ("b", 2), ("c", 6379)], 0),
        ("redis+sentinel://a,b:7/mymaster/2", [("a", 26379), ("b", 7)], 2),
    ],
)
def test_hosts_ports_and_databases_are_found(url: str, nodes: list[tuple[str, int]], db: int) -> None:
    address = parse_address(url)

    assert [(node.host, node.port) for node in address.nodes] == nodes
    assert address.db == db


def test_a_socket_is_a_path() -> None:
    address = parse_address("unix:///run/my%20redis.sock?db=2")

    assert address.nodes == (Node(path="/run/my redis.sock"),)
    assert address.db == 2


def test_a_login_may_hold_anything_and_is_never_shown() -> None:
    address = parse_address("redis://us%40er:p%3Aa%2Fss%40word@host:1")

    assert (address.login.username, address.login.password) == ("us@er", "p:a/ss@word")
    assert "p:a" not in f"{address} {address!r}"


def test_a_password_alone_is_that_of_the_default_user() -> None:
    assert parse_address("redis://:secret@host").login.password == "secret"
    assert parse_address("redis://host?username=u&password=p").login.username == "u"


def test_sentinels_have_a_service_and_a_login_of_their_own() -> None:
    address = parse_address("redis+sentinel://:pw@a/main?sentinel_password=spw")

    assert (address.topology, address.service) == (Topology.SENTINEL, "main")
    assert (address.login.password, address.sentinel_login.password) == ("pw", "spw")


def test_tls_is_asked_for_by_the_scheme_and_its_files_are_checked() -> None:
    assert parse_address("redis://h").tls_context() is None
    context = parse_address("rediss://h?ssl_cert_reqs=none").tls_context()
    assert context is not None
    assert context.check_hostname is False
    with pytest.raises(BadAddress, match="TLS files"):
        parse_address(f"rediss://h?ssl_ca_certs={Path('/does/not/exist.pem')}").tls_context()


def test_a_message_about_a_bad_url_does_not_repeat_its_password() -> None:
    with pytest.raises(BadAddress) as caught:
        parse_address("http://user:hunter2@host")

    assert "hunter2" not in str(caught.value)


@given(
    before=st.text("/?#@:%[]&=,1a", max_size=4),
    after=st.text("/?#@:%[]&=,1a", max_size=4),
    host=st.sampled_from(["@host", "@host:6379/0", "@host/x", "@host?db=x", "@[::1]:1"]),
    scheme=st.sampled_from(["redis", "redis+sentinel", "redis+cluster", "unix", "http", ""]),
)
@example(before="[", after="", host="@host", scheme="redis")
@example(before="1#", after="", host="@host", scheme="redis")
@example(before="1?", after="", host="@host", scheme="redis")
def test_no_message_repeats_a_password_that_was_not_escaped(before: str, after: str, host: str, scheme: str) -> None:
    assert "hunter" not in _complaint_about(f"{scheme}://user:{before}hunter{after}{host}")


@pytest.mark.parametrize("url", ["user:hunter2@host", "redis://user:hunter2", "redis://user:1/hunter2"])
def test_nor_does_one_about_a_url_that_lacks_something(url: str) -> None:
    complaint = _complaint_about(url)

    assert complaint
    assert "hunter2" not in complaint


def _complaint_about(url: str) -> str:
    try:
        parse_address(url)
    except BadAddress as refused:
        return f"{refused} {refused.hint}"
    return ""


@pytest.mark.parametrize("url", ["redis://:1#hunter2@host", "redis://:1?hunter2@host", "redis://:1/hunter2@host"])
def test_a_piece_of_a_password_is_not_taken_for_the_port_of_this_machine(url: str) -> None:
    with pytest.raises(BadAddress, match="makes no sense") as refused:
        parse_address(url)

    assert "# as %23" in str(refused.value.hint)


def test_whoever_is_told_nothing_looks_at_redis_url() -> None:
    assert default_url({"REDIS_URL": "redis://there"}) == "redis://there"
    assert default_url({}) == "redis://localhost:6379"
