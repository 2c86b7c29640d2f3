"""Who gets in, what nobody may do, and what is never told: tokens, scopes, hosts, TLS, paths, links, secrets."""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
import json
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from scripts import run_script
from unit.ops.support.running import Response, RunningServer, ScriptClient, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "canary-text-that-no-log-may-hold"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), "--require-token", "-v") as server:
        yield server


def make_token(server: RunningServer, *words: str) -> str:
    made = run_script(
        "jolli-ops",
        *("token", "create", "--data", str(server.data), "--name", "ana", "--json", *words),
        cwd=server.data.parent,
    )
    assert made.code == 0, made
    token: str = made.json["token"]
    return token


def bearer(token: str) -> dict[str, Any]:
    return {"Authorization": f"Bearer {token}"}


class TestTokens:
    def test_without_one_nobody_gets_in(self, server: RunningServer) -> None:
        for method, path in [("POST", "/v1/sync/push"), ("POST", "/v1/sync/pull"), ("GET", "/v1/sync/feed")]:
            response = server.ask(method, path, b"{}" if method == "POST" else None)

            assert (response.status, response.code) == (401, "token_required")
            assert response.headers["www-authenticate"] == "Bearer"
        assert server.ask("GET", "/metrics").status == 401
        assert server.ask("GET", "/healthz").status == 200

    @pytest.mark.parametrize("wrong", ["", "x", "jo_", "jo_000000000000_00", "jo__", "Ünicode"])
    def test_a_wrong_one_is_refused(self, server: RunningServer, wrong: str) -> None:
        response = server.push(batch(op(1)), **bearer(wrong.encode("latin-1", "replace").decode("latin-1")))

        assert (response.status, response.code) == (401, "token_invalid")

    def test_the_right_id_with_another_secret_is_refused(self, server: RunningServer) -> None:
        token = make_token(server)
        changed = token[:-1] + ("0" if token[-1] != "0" else "1")

        assert server.push(batch(op(1)), **bearer(token)).status == 200
        assert server.push(batch(op(1)), **bearer(changed)).code == "token_invalid"

    @pytest.mark.parametrize(
        ("words", "push", "feed"),
        [
            (["--scope", "read"], 403, 200),
            (["--scope", "push"], 200, 403),
            (["--scope", "admin"], 200, 200),
            (["--scope", "push", "--scope", "read"], 200, 200),
        ],
    )
    def test_a_scope_allows_what_it_says(self, server: RunningServer, words: list[str], push: int, feed: int) -> None:
        space = server.new_space()
        token = make_token(server, *words)

        pushed = server.push(batch(op(1)), space=space, **bearer(token))
        fed = server.ask("GET", "/v1/sync/feed", space=space, **bearer(token))

        assert (pushed.status, fed.status) == (push, feed)
        assert {response.code for response in (pushed, fed) if response.status != 200} <= {"scope_missing"}

    def test_it_is_for_its_spaces_only(self, server: RunningServer) -> None:
        mine, other = server.new_space(), server.new_space()
        token = make_token(server, "--space", mine)

        assert server.push(batch(op(1)), space=mine, **bearer(token)).status == 200
        assert server.push(batch(op(1)), space=other, **bearer(token)).code == "scope_missing"
        assert server.push(batch(op(1)), **bearer(token)).code == "scope_missing"

    def test_another_tenant_can_neither_see_nor_collide(self, server: RunningServer) -> None:
        run_script(
            "jolli-ops",
            *("space", "create", "default", "--tenant", "other", "--data", str(server.data)),
            cwd=server.data.parent,
        )
        ours, theirs = make_token(server), make_token(server, "--tenant", "other")

        first = server.push(batch(op(1), request="SHARED"), **bearer(ours))
        second = server.push(batch(op(1, content="theirs"), request="SHARED"), **bearer(theirs))
        probe = server.ask("GET", "/v1/sync/requests/SHARED", space="space0", **bearer(theirs))

        assert (first.status, second.status) == (200, 200)
        assert "idempotent-replay" not in second.headers
        assert (probe.status, probe.code) == (404, "unknown_space")

    def test_a_revoked_one_is_refused_at_once(self, server: RunningServer) -> None:
        token = make_token(server)
        identifier = token.split("_")[1]
        assert server.ask("GET", "/v1/sync/limits", **bearer(token)).status == 200

        run_script("jolli-ops", "token", "revoke", identifier, "--data", str(server.data), cwd=server.data.parent)

        assert server.ask("GET", "/v1/sync/limits", **bearer(token)).code == "token_invalid"

    def test_an_expired_one_is_refused(self, server: RunningServer) -> None:
        token = make_token(server, "--expires", "0s")

        assert server.ask("GET", "/v1/sync/limits", **bearer(token)).code == "token_invalid"

    def test_only_a_digest_of_it_is_kept(self, server: RunningServer) -> None:
        secret = make_token(server).split("_")[2]
        listed = run_script("jolli-ops", "token", "list", "--data", str(server.data), cwd=server.data.parent)

        kept = b"".join(path.read_bytes() for path in server.data.iterdir() if path.is_file())
        assert secret.encode() not in kept
        assert bytes.fromhex(secret) not in kept
        assert secret not in listed.stdout

    def test_too_many_requests_are_told_to_wait(self, server: RunningServer) -> None:
        token = make_token(server, "--rate-per-s", "1")

        responses = [server.ask("GET", "/v1/sync/limits", **bearer(token)) for _ in range(6)]

        assert responses[0].status == 200
        assert (responses[-1].status, responses[-1].code, responses[-1].headers["retry-after"]) == (
            429,
            "rate_limited",
            "1",
        )


class TestWhereItListens:
    def test_it_does_not_listen_beyond_this_machine_without_a_token(self, tmp_path: Path) -> None:
        refused = run_script("jolli-ops", "serve", "--host", "0.0.0.0", "--port", "0", "--json", cwd=tmp_path)

        assert refused.code == 1
        assert refused.fault["kind"] == "NotLoopback"

    def test_with_one_it_does_and_asks_everybody(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        made = run_script("jolli-ops", "token", "create", "--name", "a", "--data", "data", cwd=tmp_path)
        token = made.stdout.strip()

        with running_server(tmp_path, "--host", "0.0.0.0") as server:
            server.url = server.url.replace("0.0.0.0", "127.0.0.1")

            assert server.push(batch(op(1))).code == "token_required"
            assert server.push(batch(op(1)), **bearer(token)).status == 200

    def test_on_this_machine_nobody_needs_one_but_a_wrong_one_is_still_wrong(self, tmp_path: Path) -> None:
        with running_server(tmp_path) as server:
            assert server.push(batch(op(1))).status == 200
            assert server.push(batch(op(1)), **bearer("jo_1_2")).code == "token_invalid"

    def test_a_web_page_whose_name_points_here_does_not_get_in(self, tmp_path: Path) -> None:
        with running_server(tmp_path) as server:
            assert server.push(batch(op(1)), Host="evil.example.org").code == "forbidden_host"
            assert server.push(batch(op(1)), Host="localhost:3001").status == 200
            assert server.push(batch(op(1)), Host="[::1]:3001").status == 200


class TestTls:
    def test_a_client_that_trusts_the_certificate_gets_in_and_no_other(self, tmp_path: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"),
            ],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

        with running_server(tmp_path, "--tls-cert", "cert.pem", "--tls-key", "key.pem") as server:
            assert server.url.startswith("https://")
            client = ScriptClient(tmp_path / "client", server.url)
            client.write("a.md", "text")
            trusting = client.run("push", "--json", JOLLI_CA_FILE=str(tmp_path / "cert.pem"))
            client.write("b.md", "text")
            other = client.run("push", "--retry-for", "0s")

        assert (trusting.code, trusting.json["applied"]) == (0, 1)
        assert other.code == 75
        assert "certificate" in other.stderr.lower()

    def test_certificate_and_key_belong_together(self, tmp_path: Path) -> None:
        refused = run_script("jolli-ops", "serve", "--tls-cert", "cert.pem", cwd=tmp_path)

        assert refused.code == 1
        assert "belong together" in refused.stderr

    def test_a_token_does_not_leave_this_machine_in_clear_text(self, tmp_path: Path) -> None:
        client = ScriptClient(tmp_path, "http://sync.example.org:3001", JOLLI_TOKEN="jo_1_secret")
        client.write("a.md", "text")

        refused = client.run("push", "--json")

        assert refused.code == 1
        assert refused.fault["kind"] == "InsecureServer"
        assert "secret" not in refused.stderr


class FakeServer(BaseHTTPRequestHandler):
    """Answers whatever it was told to, and notes what it was asked."""

    answers: list[tuple[int, dict[str, str], bytes]]
    seen: list[tuple[str, dict[str, str]]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.path, dict(self.headers.items())))
        status, headers, body = self.answers.pop(0)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""


@contextmanager
def fake_server(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    handler = type("Handler", (FakeServer,), {"answers": list(answers), "seen": []})
    with HTTPServer(("127.0.0.1", 0), handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}", handler.seen  # type: ignore[attr-defined]
        finally:
            listener.shutdown()
            thread.join()


def pulled(*paths: str) -> tuple[int, dict[str, str], bytes]:
    changes = [
        {
            "fileId": f"F{number}",
            "serverPath": path,
            "version": 1,
            "deleted": False,
            "content": "from the server",
            "contentHash": "x",
        }
        for number, path in enumerate(paths)
    ]
    return 200, {}, json.dumps({"newCursor": 9, "changes": changes, "more": False}).encode()


class TestPathsAndLinks:
    @pytest.mark.parametrize(
        "path",
        [
            "../evil.md",
            "/tmp/evil.md",
            "a/../../evil.md",
            ".git/hooks/post-checkout",
            "sub/.GIT/config",
            ".jolli/ops.toml",
            "C:\\evil.md",
            "a\0b",
            "con",
        ],
    )
    def test_a_hostile_server_cannot_write_outside_the_folder_or_into_git(self, tmp_path: Path, path: str) -> None:
        with fake_server(pulled(path, "fine.md")) as (url, _):
            client = ScriptClient(tmp_path, url)
            before = sorted(client.home.rglob("*.md"))

            answer = client.run("pull", "--json")

        assert before == []
        assert answer.code == 3
        assert list(answer.json["skipped"]) == [path]
        assert sorted(one.name for one in client.workspace.iterdir()) == ["fine.md"]

    def test_a_link_in_the_folder_leads_nobody_out(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "x.md").write_text("precious")
        with fake_server(pulled("link/x.md", "link", "inner/y.md")) as (url, _):
            client = ScriptClient(tmp_path / "client", url)
            (client.workspace / "link").symlink_to(outside)
            (client.workspace / "real").mkdir()
            (client.workspace / "inner").symlink_to(client.workspace / "real")

            answer = client.run("pull", "--json")

        assert set(answer.json["skipped"]) == {"link/x.md", "link", "inner/y.md"}
        assert (outside / "x.md").read_text() == "precious"
        assert list((client.workspace / "real").iterdir()) == []

    def test_links_are_not_pushed(self, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text(CANARY)
        with running_server(tmp_path / "s") as server:
            client = ScriptClient(tmp_path / "client", server.url)
            (client.workspace / "link.md").symlink_to(tmp_path / "secret")
            (client.workspace / "folder").symlink_to(tmp_path)
            client.write("a.md", "text")

            pushed = client.run("push", "--json")

            assert (pushed.json["applied"], len(pushed.json["plan"]["skipped"])) == (1, 2)
            assert CANARY not in json.dumps(server.pull())

    def test_a_redirect_is_not_followed_and_the_token_stays(self, tmp_path: Path) -> None:
        with fake_server() as (elsewhere, stolen):
            moved: tuple[int, dict[str, str], bytes] = (302, {"Location": elsewhere + "/v1/sync/push"}, b"")
            with fake_server(moved, moved) as (url, _):
                client = ScriptClient(tmp_path, url, JOLLI_TOKEN="jo_1_secret")
                client.write("a.md", "text")

                answer = client.run("push")

        assert answer.code == 1
        assert stolen == []


class TestSecrets:
    def test_no_secret_reaches_a_log_an_event_or_a_file(self, server: RunningServer, tmp_path: Path) -> None:
        token = make_token(server)
        secret = token.split("_")[2]
        client = ScriptClient(tmp_path / "client", server.url, server.new_space(), JOLLI_TOKEN=token)
        client.write("a.md", CANARY)
        client.write("b.md", CANARY * 2)
        told = [
            client.run("push", "--json"),
            client.run("push", "--json", JOLLI_TOKEN=token + "x"),
            client.run("plan"),
            client.run("status", "--remote"),
            client.run("doctor"),
            client.run("config", "--origin"),
            client.run("push", "--space", "nowhere"),
        ]
        responses = [server.push(f'{{"requestId":"{CANARY}'.encode(), **bearer(token)), refused_text(server, token)]

        log = server.log_path.read_text()
        kept = [path for path in (client.home / "jolli").rglob("*") if path.is_file()]
        assert "/v1/sync/push" in log
        assert not [secret for place in (log, *(one.stdout + one.stderr for one in told)) if secret in place]
        assert [path.name for path in kept if secret.encode() in path.read_bytes()] == []
        assert CANARY not in log
        assert [one for one in told if CANARY in one.stdout + one.stderr] == []
        assert [
            path.name for path in kept if path.name == "events.jsonl" and CANARY.encode() in path.read_bytes()
        ] == []
        assert [one.body for one in responses if CANARY.encode() in one.body] == []

    def test_a_token_on_the_command_line_is_not_possible(self, tmp_path: Path) -> None:
        """Everybody on the machine can read the arguments of a process."""
        client = ScriptClient(tmp_path, "http://127.0.0.1:9")

        assert client.run("push", "--token", "jo_1_2").code == 2

    def test_a_token_file_is_read(self, server: RunningServer, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(make_token(server) + "\n")
        client = ScriptClient(tmp_path / "c", server.url, JOLLI_TOKEN_FILE=str(tmp_path / "token"))
        client.write("tokenfile.md", "text")

        assert client.run("push").code == 0


def refused_text(server: RunningServer, token: str) -> Response:
    return server.push(batch(op(1, contentHash=5, content=CANARY)), **bearer(token))
