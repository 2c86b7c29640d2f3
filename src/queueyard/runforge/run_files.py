"""The folder of a run: request.json, logs.txt, result.json.

logs.txt is a new file for each attempt, and whoever writes to it holds its lock: the lock belongs to the open file,
which the process of the run shares with the daemon. It is free once nobody of the run is left, whatever happened to
the daemon; that is how a later one knows whether a run that nobody can name is still there.
"""

from __future__ import annotations

from contextlib import suppress
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queueyard.kernel.atomic import FILES, NOT_UNDERSTOOD
from queueyard.kernel.errors import explaining
from queueyard.runforge.errors import InvalidRequest, MissingFiles
from queueyard.runforge.groups import is_number
from queueyard.runforge.plans import is_command
from queueyard.runforge.records import decode_raw, encode_pretty
from queueyard.runforge.tokens import is_token

if TYPE_CHECKING:
    from queueyard.runforge.records import Raw

#: as text on the way of every run: making a path of it, and a text of that, costs more than the system call
Folder = Path | str

REQUEST = "request.json"
RESULT = "result.json"
LOG = "logs.txt"

MODEL_FAMILIES = ("logistic_regression", "random_forest", "linear_svc")
PRESETS = ("fast", "balanced", "thorough", "custom")

_LONGEST_ERROR = 500
_TAIL_BYTES = 8192
_CHUNK = 65_536


def _content(path: str) -> bytes:
    """A whole small file. OSError as it comes; several of these stand on the way of every run."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(descriptor, _CHUNK)]
        while len(parts[-1]) == _CHUNK:
            parts.append(os.read(descriptor, _CHUNK))
        return b"".join(parts)
    finally:
        os.close(descriptor)


# --- request ---------------------------------------------------------------------------------------------------------


def read_request(folder: Folder) -> Raw:
    """request.json, checked. MissingFiles if it or its folder is not there, InvalidRequest if it makes no sense."""
    path = f"{folder}/{REQUEST}"
    try:
        data = _content(path)
    except (FileNotFoundError, NotADirectoryError) as fault:
        if not Path(folder).is_dir():
            raise MissingFiles(
                f"Run directory not found: {folder}", hint=f"Make it, with a {REQUEST} in it."
            ) from fault
        raise MissingFiles(f"{REQUEST} not found in {folder}", hint=f"Write one: $EDITOR {path}") from fault
    except OSError as fault:
        with explaining("read", path):
            raise fault from None
    try:
        raw: Raw = decode_raw(data)
    except NOT_UNDERSTOOD as fault:
        raise InvalidRequest(f"{path} cannot be understood: {fault}", hint=f"Correct it: $EDITOR {path}") from fault
    faults = request_faults(raw)
    if faults:
        raise InvalidRequest(
            f"{path} is invalid:\n" + "\n".join(f"  - {one}" for one in faults), hint=f"Correct it: $EDITOR {path}"
        )
    return raw


def write_request(path: str, data: bytes) -> None:
    """A new request.json; ten thousand of them are written for one sweep, so each is two system calls."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def request_faults(raw: Raw) -> list[str]:
    """All that is wrong with a request, each with its field."""
    version = raw.get("version")
    faults = []
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        faults.append(f"version: must be a whole number from 1 on, not {version!r}")
    return faults + (_command_faults(raw) if "command" in raw else _training_faults(raw))


def _command_faults(raw: Raw) -> list[str]:
    faults = []
    if not is_command(raw["command"]):
        faults.append("command: must be a list of words, at least one")
    if not isinstance(raw.get("cwd"), str | None):
        faults.append("cwd: must be a path")
    env = raw.get("env")
    if env is not None and not (
        isinstance(env, dict) and all(isinstance(one, str | int | float) for one in env.values())
    ):
        faults.append("env: must be an object of texts")
    timeout_s = raw.get("timeout_s")
    if timeout_s is not None and not (_is_number(timeout_s) and timeout_s > 0):
        faults.append("timeout_s: must be a number of seconds above 0")
    if not isinstance(raw.get("requires_gpu", False), bool):
        faults.append("requires_gpu: must be true or false")
    return faults


def _training_faults(raw: Raw) -> list[str]:
    faults = []
    if raw.get("preset", "balanced") not in PRESETS:
        faults.append(f"preset: must be one of {', '.join(PRESETS)}, not {raw['preset']!r}")
    dataset, model, device = (_object(raw, key) for key in ("dataset", "model", "device"))
    needed = (("dataset", dataset, "path"), ("dataset", dataset, "label_column"), ("model", model, "family"))
    faults += [f"{name}.{key}: is missing" for name, held, key in needed if not _is_text(held.get(key))]
    if not isinstance(model.get("hyperparameters"), dict | None):
        faults.append("model.hyperparameters: must be an object")
    if device.get("type", "cpu") not in {"cpu", "gpu"}:
        faults.append(f"device.type: must be cpu or gpu, not {device['type']!r}")
    return faults


def requires_gpu(raw: Raw) -> bool:
    """Whether a run may only be started on a GPU slot."""
    return raw.get("requires_gpu") is True or _object(raw, "device").get("type") == "gpu"


def _object(raw: Raw, key: str) -> Raw:
    value: Any = raw.get(key)
    return value if isinstance(value, dict) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- result ----------------------------------------------------------------------------------------------------------


def read_result(folder: Folder) -> Raw | None:
    """result.json, or None where there is none or none that can be read: a result is a help, never a need."""
    try:
        raw: Raw = decode_raw(_content(f"{folder}/{RESULT}"))
    except (OSError, *NOT_UNDERSTOOD):
        return None
    return raw


def write_result(folder: Folder, result: Raw) -> None:
    """Put result.json there at once, but unflushed: a result that a power cut takes is a run that is done again.

    StorageFailed if the disk refuses.
    """
    target, temporary = f"{folder}/{RESULT}", f"{folder}/.{RESULT}.new"
    with explaining("write", target):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, encode_pretty(result))
        finally:
            os.close(descriptor)
        FILES.rename(temporary, target)


def forget_result(folder: Folder) -> None:
    """A new attempt has no result yet."""
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/{RESULT}")  # noqa: PTH108  on the way of every start


# --- log -------------------------------------------------------------------------------------------------------------


def open_log(folder: Folder) -> int:
    """A new, empty logs.txt, locked, for the daemon and the process of the run. OSError if it cannot be made."""
    path, flags = f"{folder}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError:
        os.unlink(path)  # noqa: PTH108
        descriptor = os.open(path, flags, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def reopen_log(folder: Folder) -> int | None:
    """The log of a run that another daemon started, to add to it; None where it is gone."""
    try:
        return os.open(f"{folder}/{LOG}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return None


def is_log_held(folder: Folder) -> bool:
    """Whether somebody of the last attempt is left."""
    try:
        descriptor = os.open(f"{folder}/{LOG}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_log(descriptor: int, line: str) -> None:
    """Add a line; a log that cannot be written is no reason to fail a run."""
    with suppress(OSError):
        os.write(descriptor, f"{line}\n".encode("utf-8", "replace"))


def read_metrics(folder: Folder) -> Raw:
    """What a run left in artifacts/metrics.json, as far as it is numbers."""
    try:
        raw: Raw = decode_raw(_content(f"{folder}/artifacts/metrics.json"))
    except (OSError, *NOT_UNDERSTOOD):
        return {}
    return {name: value for name, value in raw.items() if is_number(value)}


def last_words(folder: Folder) -> str | None:
    """The end of the log without tokens, for `error`: programs say last why they fail."""
    try:
        with Path(f"{folder}/{LOG}").open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            text = stream.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.strip() and not is_token(line)]
    return "\n".join(lines)[-_LONGEST_ERROR:].strip() or None
