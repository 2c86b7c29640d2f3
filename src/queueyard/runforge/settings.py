"""runforge's settings: `.runforge/queueyard.toml`, the environment (RUNFORGE_...), the flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.settings import Layer, Settled, environment_layer, file_layer, settle
from queueyard.runforge.records import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_PARALLEL = 2
GPU_SLOTS = 1
#: as long as the public tool waits for running jobs when it is asked to stop
SHUTDOWN_GRACE_S = 60.0
#: between TERM and KILL
KILL_GRACE_S = 5.0
#: runs are children of the daemon
LOCAL = "local"


class RunforgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set, with its default."""

    #: how many runs at once
    max_parallel: int = MAX_PARALLEL
    #: how many of them may hold a GPU
    gpu_slots: int = GPU_SLOTS
    #: how to choose between groups: fair or contract-v1
    policy: Policy = Policy.FAIR
    #: seconds that one attempt may take; 0 for no limit
    job_timeout_s: float = 0.0
    #: seconds that a daemon which was asked to stop waits for running jobs before it ends them
    shutdown_grace_s: float = SHUTDOWN_GRACE_S
    #: seconds between TERM and KILL
    kill_grace_s: float = KILL_GRACE_S
    #: seconds that a command waits for another one that writes
    lock_timeout_s: float = 10.0
    #: local, or what carries runs elsewhere: each is then started by `queueyard bridge executor NAME`
    executor: str = LOCAL
    #: words of a command that is started when a group has ended
    on_group_end: tuple[str, ...] = ()
    #: variables that runs get although their names look like secrets (HF_TOKEN, WANDB_API_KEY)
    pass_env: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_parallel < 1:
            raise ValueError(f"max_parallel: must be 1 or more, not {self.max_parallel}")
        if self.gpu_slots < 0:
            raise ValueError(f"gpu_slots: must be 0 or more, not {self.gpu_slots}")
        for name in ("job_timeout_s", "shutdown_grace_s", "kill_grace_s", "lock_timeout_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: must be 0 or more, not {getattr(self, name):g}")


SETTING_NAMES = tuple(RunforgeSettings.__struct_fields__)
_LISTS = ("on_group_end", "pass_env")


def load(file: Path, environment: Mapping[str, str], **flags: Any) -> Settled[RunforgeSettings]:
    """The settings in force; flags that are None say nothing. BadSettings lists every fault at once."""
    variables = environment_layer(RunforgeSettings, "RUNFORGE", environment)
    return settle(
        RunforgeSettings,
        [
            Layer(name="flag", values=_split(flags), spelling={name: f"--{name.replace('_', '-')}" for name in flags}),
            Layer(name=variables.name, values=_split(variables.values), spelling=variables.spelling),
            file_layer(file),
        ],
    )


def _split(values: Mapping[str, Any]) -> dict[str, Any]:
    """A command or a list of names is one text on the command line and in the environment."""
    import shlex  # noqa: PLC0415  only where a list was set

    split = dict(values)
    for name in _LISTS:
        if isinstance(split.get(name), str):
            split[name] = shlex.split(split[name])
    return split
