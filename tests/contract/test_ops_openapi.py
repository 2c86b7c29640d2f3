"""The OpenAPI document against the server that it describes: no server error, no undocumented status or shape."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from unit.ops.support.running import running_server

if TYPE_CHECKING:
    from pathlib import Path

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
EXAMPLES = os.environ.get("OPS_EXAMPLES", "10")


def test_generated_requests_get_documented_answers(tmp_path: Path) -> None:
    if importlib.util.find_spec("schemathesis") is None:
        reason = f"schemathesis is not installed beside {sys.executable}: pip install schemathesis"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)

    with running_server(tmp_path) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--checks", ",".join(CHECKS), "--max-examples", EXAMPLES, "--seed", "7", "--no-color"),
                *("--header", "X-Jolli-Space: default"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

        assert done.returncode == 0, done.stdout[-6_000:]
        assert "Tested: 6" in done.stdout
        assert server.ask("GET", "/readyz").status == 200
    assert "Traceback" not in server.log_path.read_text()
