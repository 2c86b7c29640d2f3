"""`queueyard demo`, interrupted at one line after the other: whatever it was doing, nothing is left.

QUEUEYARD_INTERRUPTS sets how often (12).
"""

from __future__ import annotations

from itertools import islice
import os
from pathlib import Path
import random
import shutil
import signal
import tempfile

import pytest

from scripts import finish, start_script
from servers import wait_until
from yards import processes_in

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]
INTERRUPTS = int(os.environ.get("QUEUEYARD_INTERRUPTS", "12"))
#: the pipeline is told to start behind about so many lines, and is silent while it works
LINES = 280
PATIENCE_S = 120.0


@pytest.mark.parametrize("number", range(INTERRUPTS))
def test_it_leaves_nothing_wherever_it_is_interrupted(number: int) -> None:
    dice = random.Random(number)
    folder = Path(tempfile.mkdtemp(prefix="qy-"))
    running = start_script("queueyard", "demo", cwd=folder, TMPDIR=str(folder), PYTHONUNBUFFERED="1")
    assert running.stdout is not None
    read = len(list(islice(running.stdout, dice.randrange(1, LINES))))

    running.send_signal(dice.choice([signal.SIGINT, signal.SIGTERM]))

    answer = finish(running)
    assert answer.code == 130, f"after {read} lines: {answer}"
    wait_until(lambda: list(folder.iterdir()) == [] and processes_in(folder) == [], "something is left", PATIENCE_S)
    shutil.rmtree(folder)
