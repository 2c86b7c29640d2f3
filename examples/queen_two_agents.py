"""Two agents share a repository: one reserves files, the other waits for its turn.

Run it anywhere: python examples/queen_two_agents.py
"""

from __future__ import annotations

from pathlib import Path
import tempfile

from queueyard.queen import Queen
from queueyard.queen.errors import ReservationConflict


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        (repository / ".beads").mkdir()

        with Queen.open(repository, agent="ana") as ana, Queen.open(repository, agent="ben") as ben:
            ana.reserve(["src/ui/**"], ttl="45m", reason="new button")

            try:
                ben.reserve(["src/*/theme.css"])
            except ReservationConflict as conflict:
                holder = conflict.conflicts[0].held
                print(f"ben has to wait: {holder.agent} holds {holder.pattern} ({holder.reason})")
                ben.send(holder.agent, "Tell me when src/ui/theme.css is free, please.", subject="theme.css")

            for message in ana.wait(timeout_s=5):
                print(f"ana reads: {message.subject}: {message.body}")
                ana.unreserve()
                ana.reply(message.id, "It is yours.")

            reserved = ben.reserve(["src/*/theme.css"], wait_s=5)
            print(f"ben holds {reserved.reserved[0].pattern}")


if __name__ == "__main__":
    main()
