"""What the server should do, written down a second time and as simply as possible: the oracle of the simulator.

Knows nothing of the code under test: plain dicts, plain JSON, one op after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from typing import Any


@dataclass
class File:
    path: str
    version: int
    content: str | None


@dataclass
class Model:
    """One space: its files and what was applied, in order."""

    files: dict[str, File] = field(default_factory=dict)
    applied: list[tuple[str, int, str]] = field(default_factory=list)

    def apply(self, body: bytes) -> list[dict[str, Any]]:
        """The results that the server should give for a batch that it takes."""
        batch = json.loads(body)
        results = []
        for op in batch["ops"]:
            result = self._apply_op(op)
            if result["status"] == "applied" and not result.get("unchanged"):
                self.applied.append((batch["requestId"], batch["batchIndex"], op["opId"]))
            results.append({"opId": op["opId"], "fileId": op["fileId"], **result})
        return results

    def contents(self) -> dict[str, tuple[str, int, str | None]]:
        """File id -> (path, version, text or None for a tombstone)"""
        return {file_id: (one.path, one.version, one.content) for file_id, one in self.files.items()}

    def _apply_op(self, op: dict[str, Any]) -> dict[str, Any]:
        if ".." in op["serverPath"].split("/"):
            return {"status": "rejected"}
        there = self.files.get(op["fileId"])
        return self._delete(op, there) if op["type"] == "delete" else self._upsert(op, there)

    def _delete(self, op: dict[str, Any], there: File | None) -> dict[str, Any]:
        if there is None or there.content is None:
            return {"status": "applied", "newVersion": there.version if there else 0, "unchanged": True}
        if op["baseVersion"] != there.version:
            return {"status": "conflict", "code": "version", "serverVersion": there.version}
        self.files[op["fileId"]] = File(there.path, there.version + 1, None)
        return {"status": "applied", "newVersion": there.version + 1}

    def _upsert(self, op: dict[str, Any], there: File | None) -> dict[str, Any]:
        version = there.version if there else 0
        same = there is not None and (there.path, there.content) == (op["serverPath"], op["content"])
        if same and op["baseVersion"] in {version, version - 1}:
            return {"status": "applied", "newVersion": version, "unchanged": True}
        if op["baseVersion"] != version:
            return {"status": "conflict", "code": "version", "serverVersion": version}
        if self._is_taken(op["serverPath"].lower(), op["fileId"]):
            return {"status": "conflict", "code": "path_taken"}
        self.files[op["fileId"]] = File(op["serverPath"], version + 1, op["content"])
        return {"status": "applied", "newVersion": version + 1}

    def _is_taken(self, path: str, file_id: str) -> bool:
        """By another live file whose path is the same but for case, or a folder of ours, or below us."""
        others = [one.path.lower() for key, one in self.files.items() if key != file_id and one.content is not None]
        return any(one == path or one.startswith(path + "/") or path.startswith(one + "/") for one in others)


def agrees(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> bool:
    """Whether the server's results say what the model says; it may say more."""
    return len(expected) == len(actual) and all(map(_covers, expected, actual))


def _covers(want: dict[str, Any], have: dict[str, Any]) -> bool:
    return all({"unchanged": False, **have}.get(name) == value for name, value in {"unchanged": False, **want}.items())
