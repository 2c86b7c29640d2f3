"""Reservations: the record on disk, the four rules, overlap, `check`, `conflicts` and the commit hook."""

from __future__ import annotations

from datetime import timedelta
import json
import re
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.clock import from_rfc3339
from scripts import finish

if TYPE_CHECKING:
    from pathlib import Path

    from contract.conftest import Record, Repo

FILE = "queen_reservations.jsonl"
RESERVATION_ID = re.compile(r"qr-[0-7][0-9A-HJKMNP-TV-Z]{25}")
RFC3339_Z = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


def lifetime(record: Record) -> timedelta:
    return from_rfc3339(record["expires_at"]) - from_rfc3339(record["created_at"])


def patterns(records: list[Record]) -> list[str]:
    return [record["pattern"] for record in records]


class TestTheRecord:
    """spec: Reservation Record."""

    def test_every_field_stands_in_one_compact_line(self, repo: Repo) -> None:
        """spec: Reservation Record; File Locations; CLI Mapping, `queen reserve`."""
        shown = repo.json(
            "reserve", "src/Übung/**", "--ttl", "45m", "--issue", "qb-1", "--reason", "Button", agent="ui-engineer"
        )

        [line] = repo.lines(FILE)
        [record] = repo.records(FILE)
        assert line.decode() == json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        assert RESERVATION_ID.fullmatch(record["id"])
        assert RFC3339_Z.fullmatch(record["created_at"])
        assert RFC3339_Z.fullmatch(record["expires_at"])
        assert lifetime(record) == timedelta(minutes=45)
        assert record == {
            "id": record["id"],
            "created_at": record["created_at"],
            "expires_at": record["expires_at"],
            "pattern": "src/Übung/**",
            "agent": "ui-engineer",
            "droid": "ui-engineer",
            "issue_id": "qb-1",
            "status": "active",
            "exclusive": True,
            "reason": "Button",
        }
        assert shown == {"reserved": [record], "warnings": []}

    def test_it_holds_two_hours_or_what_the_setting_or_the_flag_says(self, repo: Repo) -> None:
        repo.json("reserve", "default", agent="a")
        repo.json("reserve", "days", "--ttl", "1d12h", agent="a")
        repo.json("config", "set", "ttl", "90s")
        repo.json("reserve", "setting", agent="a")
        repo.json("reserve", "flag", "--ttl", "1h30m", agent="a")

        assert [lifetime(record) / timedelta(minutes=1) for record in repo.records(FILE)] == [120, 36 * 60, 1.5, 90]

    def test_what_is_shared_is_not_exclusive(self, repo: Repo) -> None:
        """spec: Reservation Record, exclusive."""
        repo.json("reserve", "a", "--shared", agent="a")
        repo.json("reserve", "b", "--exclusive=false", agent="a")

        assert [record["exclusive"] for record in repo.records(FILE)] == [False, False]

    @pytest.mark.parametrize(
        ("typed", "kept"),
        [("./ui/*.ts", "src/ui/*.ts"), ("../docs/", "docs/**"), ("src/ui//x.ts", "src/ui/x.ts")],
    )
    def test_patterns_are_kept_clean_and_relative_to_the_root(self, repo: Repo, typed: str, kept: str) -> None:
        (repo.root / "src").mkdir()

        repo.queen("reserve", typed, agent="a", cwd=repo.root / "src")

        assert patterns(repo.records(FILE)) == [kept]


class TestTheRules:
    """spec: Reservation Rules; ADR 10."""

    def test_exclusive_blocks_exclusive_and_nothing_is_written(self, repo: Repo) -> None:
        """spec: Reservation Rules 1."""
        held = repo.reservation("qr-1", "src/components/**", "a", reason="Button", issue_id="qb-1")
        repo.write(FILE, held)
        before = repo.lines(FILE)

        told = repo.refused("reserve", "src/*/Button.tsx", agent="b")
        text = repo.queen("reserve", "src/*/Button.tsx", agent="b")

        assert told["kind"] == "ReservationConflict"
        assert told["conflicts"] == [{"pattern": "src/*/Button.tsx", "clash": "blocks", "held": held}]
        assert (text.code, text.stdout) == (1, "")
        assert f"a holds src/components/** exclusively until {held['expires_at']} (Button)" in text.stderr
        assert "both cover src/components/Button.tsx" in text.stderr
        assert "Hint: Wait for it: add --wait 10m    or ask: queen msg send a" in text.stderr
        assert repo.lines(FILE) == before

    def test_ones_own_reservations_block_nothing(self, repo: Repo) -> None:
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a"))

        assert len(repo.json("reserve", "src/x.ts", agent="a")["reserved"]) == 1

    def test_shared_ones_coexist(self, repo: Repo) -> None:
        """spec: Reservation Rules 2."""
        repo.write(FILE, repo.reservation("qr-1", "docs/**", "a", exclusive=False))

        done = repo.json("reserve", "docs/x.md", "--shared", "--strict", agent="b")

        assert (len(done["reserved"]), done["warnings"]) == (1, [])

    @pytest.mark.parametrize("mine", ["exclusive", "shared"])
    def test_exclusive_beside_shared_is_a_warning_and_blocks_when_strict(self, repo: Repo, mine: str) -> None:
        """spec: Reservation Rules 1 and 2 leave this case open; ADR 9."""
        repo.write(FILE, repo.reservation("qr-1", "docs/**", "a", exclusive=mine == "shared"))
        words = ["reserve", "docs/x.md", *(["--shared"] if mine == "shared" else [])]

        strict = repo.refused(*words, "--strict", agent="b")
        by_setting = repo.refused(*words, agent="b", QUEEN_STRICT="true")
        lenient = repo.queen(*words, agent="b")

        assert [one["clash"] for one in strict["conflicts"]] == ["warns"]
        assert strict["conflicts"] == by_setting["conflicts"]
        assert (lenient.code, len(repo.lines(FILE))) == (0, 2)
        assert lenient.stderr.startswith("warning: docs/x.md: a holds docs/**")

    def test_what_has_expired_neither_blocks_nor_shows_and_stays_as_it_is_written(self, repo: Repo) -> None:
        """spec: Reservation Rules 3."""
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a", expires_at=repo.moment(seconds=-1)))
        before = repo.lines(FILE)

        assert repo.json("reserved") == []
        assert repo.json("check", "src/x", agent="b")[0]["allowed"] is True
        assert len(repo.json("reserve", "src/**", agent="b")["reserved"]) == 1
        assert repo.lines(FILE)[:1] == before

    def test_giving_back_is_explicit_and_keeps_every_other_field(self, repo: Repo) -> None:
        """spec: Reservation Rules 4; CLI Mapping, `queen unreserve`."""
        held = repo.reservation("qr-1", "src/**", "a", reason="Button", issue_id="qb-1")
        repo.write(FILE, held)

        given = repo.json("unreserve", "src/**", agent="a")

        [_, released] = repo.records(FILE)
        assert RFC3339_Z.fullmatch(released["released_at"])
        assert given == [released]
        assert released == held | {"status": "released", "released_at": released["released_at"]}
        assert len(repo.json("reserve", "src/**", agent="b")["reserved"]) == 1

    def test_several_patterns_are_reserved_all_or_none(self, repo: Repo) -> None:
        repo.write(FILE, repo.reservation("qr-1", "docs/api.md", "a"))
        before = repo.lines(FILE)

        told = repo.refused("reserve", "src/**", "docs/*.md", "tests/**", agent="b")
        assert [one["pattern"] for one in told["conflicts"]] == ["docs/*.md"]
        assert repo.lines(FILE) == before

        done = repo.json("reserve", "src/**", "tests/**", "src/**", agent="b")
        assert patterns(done["reserved"]) == patterns(repo.records(FILE)[1:]) == ["src/**", "tests/**"]

    def test_force_reserves_in_spite_of_a_conflict_and_tells_it(self, repo: Repo) -> None:
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a"))

        done = repo.json("reserve", "src/x", "--force", agent="b")

        assert patterns(done["reserved"]) == ["src/x"]
        assert "a holds src/** exclusively" in done["warnings"][0]

    def test_waiting_ends_when_the_holder_gives_the_files_back(self, repo: Repo) -> None:
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a"))
        waiting = repo.start("reserve", "src/x", "--wait", "50s", "--agent", "b", "--json")

        repo.json("unreserve", "--all", agent="a")

        answer = finish(waiting)
        assert (answer.code, patterns(answer.json["reserved"])) == (0, ["src/x"])
        assert repo.refused("reserve", "src/x", "--wait", "10ms", agent="a")["kind"] == "ReservationConflict"


class TestOverlap:
    """spec: Pattern Matching; ADR 9, overlap is exact: what the symmetric rule misses, and what it invents."""

    def test_the_four_kinds_of_pattern_match_what_the_schema_says(self, repo: Repo) -> None:
        held = ["src/components/Button.tsx", "src/components/Card/**", "lib/**/*.test.ts", "*.md"]
        repo.write(FILE, *(repo.reservation(f"qr-{number}", pattern, "a") for number, pattern in enumerate(held)))
        expected = {
            "src/components/Button.tsx": [held[0]],
            "src/components/Button.tsx.orig": [],
            "src/components/Card": [held[1]],
            "src/components/Card/index.ts": [held[1]],
            "src/components/Card/a/b/.hidden": [held[1]],
            "src/components/Cards": [],
            "lib/x.test.ts": [held[2]],
            "lib/a/b/x.test.ts": [held[2]],
            "lib/x.ts": [],
            "README.md": [held[3]],
            "readme.MD": [],
            "docs/README.md": [],
            "./README.md": [held[3]],
        }

        verdicts = repo.queen("check", *expected, "--json", agent="b").json

        assert [patterns(verdict["held_by"]) for verdict in verdicts] == list(expected.values())
        assert [verdict["allowed"] for verdict in verdicts] == [not others for others in expected.values()]

    @pytest.mark.parametrize(
        ("held", "wanted"),
        [
            ("src/components/Button.tsx", "src/components/Button.tsx"),
            ("src/components/Button/**", "src/components/Button/index.ts"),
            ("src/**/*.test.ts", "src/a/b.test.ts"),
            ("src/*/x.ts", "src/a/*.ts"),
            ("a/*/c", "a/b/*"),
            ("lib/a*", "lib/*b"),
            ("src/{ui,api}/**", "src/[a-c]*/main.ts"),
            ("src/", "src/a.ts"),
        ],
    )
    def test_patterns_with_a_common_path_conflict_both_ways(self, repo: Repo, held: str, wanted: str) -> None:
        repo.write(FILE, repo.reservation("qr-1", held, "a"), repo.reservation("qr-2", f"x/{wanted}", "a"))

        told = repo.refused("reserve", wanted, f"x/{held}", agent="b")

        assert [one["held"]["id"] for one in told["conflicts"]] == ["qr-1", "qr-2"]

    def test_patterns_without_a_common_path_do_not_conflict(self, repo: Repo) -> None:
        pairs = [
            ("1/*.md", "1/src/**"),
            ("2/src/**/*.test.ts", "2/src/main.go"),
            ("3/src/a", "3/src/ab/**"),
            ("4/**/x.go", "4/src/y.go"),
            ("5/a*b", "5/ab/*"),
            ("6/[!a]x", "6/ax"),
        ]
        repo.write(FILE, *(repo.reservation(f"qr-{number}", a, "a") for number, (a, _) in enumerate(pairs)))

        done = repo.json("reserve", "--strict", *(b for _, b in pairs), agent="b")

        assert patterns(done["reserved"]) == [b for _, b in pairs]


class TestRenewing:
    """spec: Reservation Record, expires_at; ADR 16."""

    def test_reserving_again_renews_instead_of_stacking(self, repo: Repo) -> None:
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a", reason="Button"))

        [again] = repo.json("reserve", "src/**", "--ttl", "3h", agent="a")["reserved"]

        old, new = repo.records(FILE)
        assert again == new
        assert new == old | {"expires_at": new["expires_at"], "renewed_at": new["renewed_at"]}
        assert from_rfc3339(new["expires_at"]) > from_rfc3339(old["expires_at"])

    def test_renewing_moves_the_end_counted_from_now_and_never_back(self, repo: Repo) -> None:
        far = repo.moment(days=3)
        repo.write(
            FILE,
            repo.reservation("qr-1", "src/**", "a"),
            repo.reservation("qr-2", "docs/**", "a", expires_at=far),
            repo.reservation("qr-3", "lib/**", "b"),
        )

        renewed = repo.json("renew", "--ttl", "2d", agent="a")

        assert [one["id"] for one in renewed] == [one["id"] for one in repo.records(FILE)[3:]] == ["qr-1", "qr-2"]
        ends = {one["id"]: one["expires_at"] for one in renewed}
        assert ends["qr-2"] == far
        assert from_rfc3339(ends["qr-1"]) - from_rfc3339(renewed[0]["renewed_at"]) == timedelta(days=2)

    def test_by_pattern_or_id_only_what_holds_and_is_mine(self, repo: Repo) -> None:
        repo.write(
            FILE,
            repo.reservation("qr-1", "src/**", "a"),
            repo.reservation("qr-2", "docs/**", "a"),
            repo.reservation("qr-3", "lib/**", "b"),
            repo.reservation("qr-4", "old/**", "a", expires_at=repo.moment(hours=-1)),
        )

        assert [one["id"] for one in repo.json("renew", "qr-1", "docs/", agent="a")] == ["qr-1", "qr-2"]
        assert repo.refused("renew", "lib/**", agent="a")["kind"] == "NotYours"
        assert repo.refused("renew", "old/**", agent="a")["kind"] == "UnknownRecord"
        assert len(repo.lines(FILE)) == 6


class TestGivingBack:
    """spec: CLI Mapping, `queen unreserve`; ADR 17."""

    def test_only_ones_own_unless_by_force(self, repo: Repo) -> None:
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a"))

        told = repo.refused("unreserve", "src/**", agent="b")
        forced = repo.json("unreserve", "qr-1", "--force", agent="b")

        assert (told["kind"], told["error"]) == ("NotYours", "src/** is held by a")
        assert [(one["id"], one["droid"], one["status"]) for one in forced] == [("qr-1", "a", "released")]
        assert repo.refused("unreserve", "src/**", agent="a")["kind"] == "UnknownRecord"

    def test_all_of_mine_or_with_force_all(self, repo: Repo) -> None:
        repo.write(
            FILE,
            repo.reservation("qr-1", "src/**", "a"),
            repo.reservation("qr-2", "src/**", "a"),
            repo.reservation("qr-3", "lib/**", "b"),
            repo.reservation("qr-4", "doc/**", "c"),
        )

        mine = repo.json("unreserve", "--all", agent="a")
        everything = repo.json("unreserve", "--all", "--force", agent="b")

        assert [one["id"] for one in mine] == ["qr-1", "qr-2"]
        assert [one["id"] for one in everything] == ["qr-3", "qr-4"]

    def test_it_wants_to_be_told_what(self, repo: Repo) -> None:
        assert repo.queen("unreserve", agent="a").code == 2
        assert repo.queen("unreserve", "x", "--all", agent="a").code == 2


class TestTheList:
    """spec: CLI Mapping, `queen reserved`."""

    def test_it_shows_what_holds_soonest_to_end_first_and_filters(self, repo: Repo) -> None:
        """spec: CLI Mapping, `queen reserved`."""
        repo.write(
            FILE,
            repo.reservation("qr-1", "src/**", "a", expires_at="2099-01-01T00:00:00.5Z"),
            repo.reservation("qr-2", "docs/**", "b", expires_at="2099-01-01T00:00:00Z"),
            repo.reservation("qr-3", "gone/**", "a", status="released", released_at=repo.moment()),
            repo.reservation("qr-4", "gone/**", "a", status="expired"),
        )

        def listed(*words: str) -> list[str]:
            return [one["id"] for one in repo.json("reserved", *words)]

        assert listed() == ["qr-2", "qr-1"]
        assert listed("--path", "src/x/y.ts") == ["qr-1"]
        assert listed("--by", "b") == ["qr-2"]
        assert listed("--mine", "--agent", "a") == ["qr-1"]
        rows = repo.queen("reserved").stdout.splitlines()
        assert [row.split()[:3] for row in rows[1:]] == [["docs/**", "b", "exclusive"], ["src/**", "a", "exclusive"]]


class TestConflicts:
    """Beyond the spec: `queen conflicts` says who, what, why, and what to do."""

    def fill(self, repo: Repo) -> None:
        repo.write(
            FILE,
            repo.reservation("qr-2", "src/ui/*.ts", "b", created_at="2024-12-14T10:30:00.5Z", reason="tests"),
            repo.reservation("qr-1", "src/**", "a", created_at="2024-12-14T10:30:00Z", reason="Button"),
            repo.reservation("qr-3", "src/ui/x.ts", "c", exclusive=False),
            repo.reservation("qr-4", "docs/**", "c"),
        )

    def test_they_say_who_what_why_and_what_to_do(self, repo: Repo) -> None:
        self.fill(repo)

        blocking, *warnings = repo.json("conflicts")
        text = repo.queen("conflicts").stdout

        assert (blocking["reservation_a"]["id"], blocking["reservation_b"]["id"]) == ("qr-1", "qr-2")
        assert (blocking["overlap_type"], blocking["clash"]) == ("superset", "blocks")
        assert re.fullmatch(r"src/ui/[^/]*\.ts", blocking["example"])
        assert blocking["suggestion"].startswith("a came first: b should give back src/ui/*.ts")
        assert "queen unreserve qr-2 --agent b" in blocking["suggestion"]
        assert [(one["clash"], one["reservation_b"]["id"]) for one in warnings] == [("warns", "qr-3")] * 2
        for told in (
            "a src/**  ~  b src/ui/*.ts  (superset, blocks)",
            "  a: Button",
            "  b: tests",
            "  -> a came first",
        ):
            assert told in text

    def test_only_mine(self, repo: Repo) -> None:
        self.fill(repo)

        pairs = [
            (one["reservation_a"]["agent"], one["reservation_b"]["agent"])
            for one in repo.json("conflicts", "--mine", agent="b")
        ]

        assert pairs == [("a", "b"), ("b", "c")]


class TestMayIEdit:
    """Beyond the spec: `queen check`, read-only."""

    def test_it_answers_for_each_path_and_writes_nothing(self, repo: Repo) -> None:
        held = repo.reservation("qr-1", "src/**", "a", reason="Button")
        repo.write(FILE, held, repo.reservation("qr-2", "docs/**", "a", exclusive=False))
        before = repo.contents()

        asked = repo.queen("check", "src/x.ts", "docs/x.md", "README.md", "--json", agent="b")
        text = repo.queen("check", "src/x.ts", agent="b")

        assert asked.code == text.code == 1
        assert asked.json == [
            {"path": "src/x.ts", "allowed": False, "held_by": [held]},
            {"path": "docs/x.md", "allowed": True, "held_by": []},
            {"path": "README.md", "allowed": True, "held_by": []},
        ]
        assert text.stdout.startswith("held  src/x.ts\n")
        assert f"a holds src/** until {held['expires_at']} (Button)" in text.stdout + text.stderr
        assert repo.queen("check", "src/x.ts", agent="a").stdout == "free  src/x.ts\n"
        assert repo.contents() == before

    def test_it_says_no_where_nobody_can_tell(self, repo: Repo, tmp_path: Path) -> None:
        """Fails closed: what cannot be told is not allowed."""
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()

        assert repo.refused("check", "x")["kind"] == "NoIdentity"
        assert repo.refused("check", "../../x", agent="a")["kind"] == "InvalidValue"
        assert repo.queen("check", "x", agent="a", cwd=elsewhere).code == 1
        (repo.beads / FILE).mkdir()
        told = repo.refused("check", "x", agent="a")
        assert told["kind"] == "StorageFailed"
        assert str(repo.beads / FILE) in told["error"]

    def test_it_says_no_while_a_line_that_nobody_can_read_may_say_no(self, repo: Repo) -> None:
        """Fails closed; a torn last line was never acknowledged and may be passed over."""
        repo.write(FILE, repo.reservation("qr-1", "docs/**", "a"))
        with (repo.beads / FILE).open("a") as stream:
            stream.write('{"id":"qr-2","pattern":"src/**"')

        assert repo.queen("check", "src/x.ts", agent="b").code == 0
        with (repo.beads / FILE).open("a") as stream:
            stream.write(":broken}\n")
        told = repo.refused("check", "src/x.ts", agent="b")

        assert told["kind"] == "CannotTell"
        assert "line 2" in told["error"]
        assert "queen doctor" in told["hint"]
        repo.queen("doctor", "--fix")
        assert repo.queen("check", "src/x.ts", agent="b").code == 0


class TestTheGuard:
    """Beyond the spec: `queen guard`, with real git."""

    @pytest.fixture
    def guarded(self, repo: Repo) -> Repo:
        """A git repository with one commit, where a holds src/**, and the hook in place."""
        repo.git("init", "--quiet", "--initial-branch", "main")
        for name in ("src/held.ts", "docs/free.md"):
            (repo.root / name).parent.mkdir(exist_ok=True)
            (repo.root / name).write_text(f"{name}\n" * 20)
        repo.git("add", "src", "docs")
        assert repo.git("commit", "--quiet", "-m", "first").returncode == 0
        repo.write(FILE, repo.reservation("qr-1", "src/**", "a", reason="Button"))
        assert repo.queen("guard", "install").code == 0
        return repo

    def test_a_commit_of_what_another_agent_holds_is_refused(self, guarded: Repo) -> None:
        (guarded.root / "src/held.ts").write_text("mine\n")
        (guarded.root / "docs/free.md").write_text("mine\n")
        guarded.git("add", "docs")
        free = guarded.git("commit", "-m", "docs", QUEEN_AGENT="b")
        guarded.git("add", "src")

        refused = guarded.git("commit", "-m", "src", QUEEN_AGENT="b")
        by_people = guarded.git("commit", "-m", "src")
        by_holder = guarded.git("commit", "-m", "src", QUEEN_AGENT="a")

        assert free.returncode == by_holder.returncode == 0
        assert refused.returncode == by_people.returncode == 1
        assert "a holds src/** until" in refused.stderr
        assert "QUEEN_GUARD=off git commit" in refused.stderr

    @pytest.mark.parametrize(("old", "new"), [("src/held.ts", "docs/held.ts"), ("docs/free.md", "src/free.md")])
    def test_both_names_of_a_renamed_file_count(self, guarded: Repo, old: str, new: str) -> None:
        guarded.git("mv", old, new)

        refused = guarded.queen("guard", "run", "--json", agent="b")

        [held] = [path for path in (old, new) if path.startswith("src/")]
        assert refused.code == 1
        assert [verdict["path"] for verdict in refused.json] == [held]

    def test_a_variable_goes_past_it_once(self, guarded: Repo) -> None:
        (guarded.root / "src/held.ts").write_text("mine\n")
        guarded.git("add", "src")

        assert guarded.git("commit", "-m", "x", QUEEN_AGENT="b", QUEEN_GUARD="off").returncode == 0

    def test_it_refuses_where_it_cannot_tell(self, guarded: Repo) -> None:
        (guarded.root / "docs/free.md").write_text("mine\n")
        guarded.git("add", "docs")
        guarded.beads.rename(guarded.root / "beads")

        refused = guarded.git("commit", "-m", "x", QUEEN_AGENT="b")

        assert refused.returncode == 1
        assert "no .beads folder" in refused.stderr

    def test_a_file_name_that_is_no_text_is_covered_by_a_wildcard(self, guarded: Repo) -> None:
        (guarded.root / "src" / "\udcff.ts").write_text("x\n")
        guarded.git("add", "src")

        refused = guarded.queen("guard", "run", agent="b")

        assert refused.code == 1
        assert "held  src/\ufffd.ts\n" in refused.stdout

    def test_a_hook_that_was_there_runs_first_and_comes_back(self, guarded: Repo) -> None:
        hook = guarded.root / ".git/hooks/pre-commit"
        assert guarded.json("guard", "uninstall") == {"removed": str(hook)}
        assert not hook.exists()
        before = b"#!/bin/sh\necho theirs >&2\n[ ! -e stop ]\n"
        hook.write_bytes(before)
        hook.chmod(0o755)

        assert guarded.json("guard", "install") == guarded.json("guard", "install") == {"installed": str(hook)}
        (guarded.root / "src/held.ts").write_text("mine\n")
        guarded.git("add", "src")
        both = guarded.git("commit", "-m", "x", QUEEN_AGENT="b")
        (guarded.root / "stop").touch()
        theirs = guarded.git("commit", "-m", "x", QUEEN_AGENT="b")
        guarded.queen("guard", "uninstall")

        assert both.returncode == theirs.returncode == 1
        assert both.stderr.startswith("theirs\n")
        assert "a holds src/**" in both.stderr
        assert theirs.stderr == "theirs\n"
        assert (hook.read_bytes(), hook.stat().st_mode & 0o777) == (before, 0o755)
        assert [path.name for path in hook.parent.iterdir() if "queen" in path.name] == []

    def test_a_kept_hook_is_never_overwritten_by_another_one(self, guarded: Repo) -> None:
        hook = guarded.root / ".git/hooks/pre-commit"
        hook.with_name("pre-commit.before-queen").write_text("# the first one\n")
        hook.write_text("# a second one\n")

        told = guarded.refused("guard", "install")

        assert told["kind"] == "GitFailed"
        assert hook.read_text() == "# a second one\n"
        assert hook.with_name("pre-commit.before-queen").read_text() == "# the first one\n"

    def test_without_git_there_is_nothing_to_guard(self, repo: Repo) -> None:
        assert repo.refused("guard", "install")["kind"] == "GitFailed"
