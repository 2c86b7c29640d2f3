"""Who is calling, which settings hold, and which `.beads` folder is meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contract.conftest import Repo

CONFIG = "queen_config.yaml"


class TestWhoAmI:
    """The order of the public tool: flags, three variables, the settings file."""

    def test_the_first_source_that_says_something_wins(self, repo: Repo) -> None:
        config = repo.write(CONFIG, b"agent: from-config-agent\ndroid: from-config-droid\n")
        flags = ["--agent", "from-agent", "--droid", "from-droid"]
        variables = {
            "QUEEN_AGENT": "from-queen-agent",
            "QUEEN_DROID": "from-queen-droid",
            "FACTORY_DROID": "from-factory",
        }

        def who(flags: list[str], *names: str) -> tuple[str, str]:
            told = repo.json("whoami", *flags, **{name: variables[name] for name in names})
            return told["agent"], told["origin"]

        everything = ("QUEEN_AGENT", "QUEEN_DROID", "FACTORY_DROID")
        assert who(flags, *everything) == ("from-agent", "flag")
        assert who(flags[2:], *everything) == ("from-droid", "flag")
        assert who([], *everything) == ("from-queen-agent", "environment")
        assert who([], *everything[1:]) == ("from-queen-droid", "environment")
        assert who([], *everything[2:]) == ("from-factory", "environment")
        assert who([]) == ("from-config-agent", str(config))
        config.write_text("droid: from-config-droid\n")
        assert who([]) == ("from-config-droid", str(config))
        config.unlink()
        told = repo.refused("whoami", QUEEN_AGENT="")
        assert told["kind"] == "NoIdentity"
        assert "--agent NAME, export QUEEN_AGENT=NAME, or: queen config set agent NAME" in told["hint"]

    def test_a_flag_may_stand_before_the_command(self, repo: Repo) -> None:
        answer = repo.queen("--agent", "a", "--json", "whoami")

        assert answer.json["agent"] == "a"

    def test_an_unknown_droid_is_nobody(self, repo: Repo) -> None:
        repo.droids("ui-engineer", "backend-engineer")
        (repo.root / ".factory/droids/.hidden.md").touch()
        (repo.root / ".factory/droids/notes.txt").touch()

        told = repo.refused("whoami", QUEEN_AGENT="UI-engineer")

        assert told["error"] == "unknown droid: 'UI-engineer'; did you mean 'ui-engineer'?"
        assert repo.json("droids") == ["backend-engineer", "ui-engineer"]


class TestSettings:
    """Beyond the spec: `queen config` over the file that the public tool knows."""

    def test_flag_before_environment_before_file_before_default(self, repo: Repo) -> None:
        path = repo.write(CONFIG, b"ttl: 3h\nstrict: true\n")

        shown = repo.json("config", "list", "--origin", QUEEN_TTL="45m", agent="a")

        assert shown == {
            "agent": {"value": "a", "origin": "flag"},
            "ttl": {"value": "45m", "origin": "environment"},
            "strict": {"value": True, "origin": str(path)},
            "check_issues": {"value": True, "origin": "default"},
            "lock_timeout_s": {"value": 10.0, "origin": "default"},
        }
        rows = repo.queen("config", "--origin").stdout.splitlines()
        assert [row.split() for row in rows[1:3]] == [["agent", "(not", "set)", "default"], ["ttl", "3h", str(path)]]
        assert repo.json("config")["ttl"] == repo.json("config", "get", "ttl") == "3h"

    def test_setting_one_keeps_comments_and_what_belongs_to_others(self, repo: Repo) -> None:
        path = repo.write(
            CONFIG,
            b"# ours\n"
            b"theirs: 1  # why\n"
            b"watchers:\n- ui\n- api: x\n"
            b"nested:\n  ttl: 9h\n"
            b"\n"
            b'ttl: "2h"  # agreed on Monday\n'
            b"droid: old-name\n"
            b"last: 'x'\n",
        )

        repo.json("config", "set", "ttl", "45m")
        repo.json("config", "set", "agent", "ui-engineer")
        repo.json("config", "set", "check_issues", "false")

        assert path.read_text() == (
            "# ours\n"
            "theirs: 1  # why\n"
            "watchers:\n- ui\n- api: x\n"
            "nested:\n  ttl: 9h\n"
            "\n"
            "ttl: 45m  # agreed on Monday\n"
            "agent: ui-engineer\n"
            "last: 'x'\n"
            "check_issues: false\n"
        )
        assert repo.json("config") | {"lock_timeout_s": 0} == {
            "agent": "ui-engineer",
            "ttl": "45m",
            "strict": False,
            "check_issues": False,
            "lock_timeout_s": 0,
        }

    def test_the_old_name_of_the_agent_can_still_be_set(self, repo: Repo) -> None:
        repo.json("config", "set", "droid", "a")

        assert (repo.beads / CONFIG).read_text() == "agent: a\n"

    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("tll", "1h", "did you mean ttl?"),
            ("ttl", "0s", "longer than zero"),
            ("ttl", "2 hours", "not a duration"),
            ("strict", "perhaps", "strict"),
            ("agent", "two words", "not a droid name"),
            ("agent", "a\nttl: 1s", "not a droid name"),
            ("agent", "ui-enginer", "did you mean 'ui-engineer'?"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_nothing_written(
        self, repo: Repo, name: str, value: str, told: str
    ) -> None:
        repo.droids("ui-engineer")

        assert told in repo.refused("config", "set", name, value)["error"]
        assert not (repo.beads / CONFIG).exists()

    def test_all_faults_of_a_file_are_told_at_once(self, repo: Repo) -> None:
        repo.write(CONFIG, b"strict: perhaps\nlock_timeout_s: soon\n")

        told = repo.refused("config")

        assert told["kind"] == "BadSettings"
        assert "strict" in told["error"]
        assert "lock_timeout_s" in told["error"]
        assert str(repo.beads / CONFIG) in told["error"]


class TestWhereIsBeads:
    """BEADS_DIR, upwards, `.beads/redirect`, and the common git folder of a linked worktree."""

    def found_from(self, repo: Repo, cwd: Path, **environment: str) -> Path:
        answer = repo.queen("whoami", "--json", agent="a", cwd=cwd, **environment)
        assert answer.code == 0, answer.stderr
        return Path(answer.json["beads"])

    def test_upwards_from_a_subfolder(self, repo: Repo) -> None:
        below = repo.root / "src" / "ui"
        below.mkdir(parents=True)

        assert self.found_from(repo, below) == repo.beads

    def test_a_variable_or_a_flag_names_it(self, repo: Repo, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()

        assert self.found_from(repo, repo.root, BEADS_DIR=str(other)) == other
        assert repo.json("whoami", "--beads-dir", str(other), agent="a", BEADS_DIR="/none")["beads"] == str(other)
        told = repo.refused("whoami", agent="a", BEADS_DIR=str(tmp_path / "none"))
        assert (told["kind"], told["hint"]) == ("NoBeads", f"Make it: mkdir -p {tmp_path / 'none'}")

    def test_a_redirect_leads_on(self, repo: Repo, tmp_path: Path) -> None:
        clone = tmp_path / "clone"
        (clone / ".beads").mkdir(parents=True)
        (clone / ".beads" / "redirect").write_text("../repo/.beads\n")

        assert self.found_from(repo, clone) == repo.beads

    def test_a_redirect_in_a_circle_is_refused(self, repo: Repo) -> None:
        (repo.beads / "redirect").write_text(".beads\n")

        assert repo.refused("whoami", agent="a")["kind"] == "NoBeads"

    def test_a_linked_worktree_outside_shares_that_of_its_repository(self, repo: Repo, tmp_path: Path) -> None:
        """spec: File Locations, "shared across worktrees"."""
        repo.git("init", "--quiet")
        repo.git("commit", "--quiet", "--allow-empty", "-m", "first")
        outside = tmp_path / "elsewhere" / "feature-ui"
        assert repo.git("worktree", "add", "--quiet", str(outside)).returncode == 0
        (outside / "src").mkdir()

        assert self.found_from(repo, outside / "src") == repo.beads
        repo.queen("reserve", "./x.ts", agent="a", cwd=outside / "src")
        assert [one["path"] for one in repo.queen("check", "src/x.ts", "--json", agent="b").json] == ["src/x.ts"]
        assert repo.queen("check", "src/x.ts", agent="b").code == 1

    def test_a_copy_that_git_checked_out_into_a_worktree_does_not_split_the_repository(
        self, repo: Repo, tmp_path: Path
    ) -> None:
        """spec: File Locations, "shared across worktrees"; also where .beads is tracked."""
        repo.git("init", "--quiet")
        repo.queen("msg", "send", "b", "hello", agent="a")
        repo.git("add", ".beads")
        repo.git("commit", "--quiet", "-m", "first")
        linked = tmp_path / "linked"
        assert repo.git("worktree", "add", "--quiet", str(linked)).returncode == 0
        assert (linked / ".beads").is_dir()

        assert self.found_from(repo, linked) == repo.beads

    def test_nowhere(self, repo: Repo, tmp_path: Path) -> None:
        answer = repo.queen("reserved", "--json", cwd=tmp_path)

        assert (answer.code, answer.fault["kind"]) == (1, "NoBeads")
        assert answer.fault["hint"].startswith("Make one: mkdir .beads")
