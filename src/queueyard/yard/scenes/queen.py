"""Three agents share out work, keep out of each other's files, and talk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queueyard.yard.scenes.stage import Stage

_ISSUES = (
    {"id": "qy-1", "title": "Button component", "priority": 1, "created_at": "2026-01-05T09:00:00Z"},
    {"id": "qy-2", "title": "Login endpoint", "priority": 2, "created_at": "2026-01-06T09:00:00Z"},
    {
        "id": "qy-3",
        "title": "Docs of both",
        "priority": 2,
        "created_at": "2026-01-07T09:00:00Z",
        "dependencies": [{"depends_on_id": "qy-1", "type": "blocks"}],
    },
)


def show_queen(stage: Stage) -> None:
    (stage.folder / ".beads").mkdir()
    lines = [json.dumps({"status": "open", "issue_type": "task", **issue}) + "\n" for issue in _ISSUES]
    (stage.folder / ".beads" / "issues.jsonl").write_text("".join(lines), encoding="utf-8")
    droids = stage.folder / ".factory" / "droids"
    droids.mkdir(parents=True)
    for name in ("ana", "ben", "cleo"):
        (droids / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    stage.say("Three agents ask for work; no two get the same issue, and a blocked one is not handed out.")
    stage.type("queen next", who="ana", contains="qy-1")
    stage.type("queen next", who="ben", contains="qy-2")
    stage.type("queen next", who="cleo", expect=1, contains="Nothing is ready")
    stage.say("Ana reserves the files that she will edit.")
    stage.type("queen reserve 'src/ui/**' --ttl 45m --issue qy-1 -r 'Button component'", who="ana")
    stage.say("Ben wants a wildcard that meets hers; he is told who, what and why, and nothing is reserved for him.")
    stage.type("queen reserve 'src/*/theme.css' 'src/api/**'", who="ben", expect=1, contains="ana holds src/ui/**")
    stage.type("queen check src/ui/button.tsx src/api/login.py", who="ben", expect=1, contains="held")
    stage.type("queen msg send ana 'May I touch src/ui/theme.css?' --issue qy-2", who="ben")
    stage.say("Ana reads it, answers, and gives the files back.")
    stage.type("queen msg inbox --mark", who="ana", contains="May I touch")
    stage.type("queen unreserve --all", who="ana")
    stage.type("queen msg send ben 'They are free now' --issue qy-2", who="ana")
    stage.type("queen reserve 'src/*/theme.css' 'src/api/**'", who="ben")
    stage.type("queen msg thread qy-2", contains="qm-")
    stage.type("queueyard add queen .", contains="added")
    stage.type("queen complete qy-1 -r 'merged'", who="ana", contains="completed")
    stage.type("queen assignments --status all", contains="qy-1")
    stage.type("queen doctor", contains="Everything is well")
