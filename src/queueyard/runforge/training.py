"""Training as RunForge asks for it: a table, a label column, one of three model families of scikit-learn.

Needs the extra `ml`; everything heavy is imported when a training starts. What is random is fixed, so that the same
request on the same data gives the same metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queueyard.kernel.atomic import replace_file
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.paths import safe_join
from queueyard.runforge import tokens
from queueyard.runforge.records import encode_pretty
from queueyard.runforge.run_files import MODEL_FAMILIES
from queueyard.runforge.tokens import Stage, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.runforge.records import Raw

_SEED = 42

#: preset -> what a family gets where the request says nothing; `custom` starts from `balanced`
_DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "fast": {
        "logistic_regression": {"max_iter": 200},
        "random_forest": {"n_estimators": 50, "max_depth": 5},
        "linear_svc": {"max_iter": 500},
    },
    "balanced": {
        "logistic_regression": {"max_iter": 1000},
        "random_forest": {"n_estimators": 100, "max_depth": 10},
        "linear_svc": {"max_iter": 1000},
    },
    "thorough": {
        "logistic_regression": {"max_iter": 5000},
        "random_forest": {"n_estimators": 300, "max_depth": None},
        "linear_svc": {"max_iter": 10_000},
    },
}


class TrainingFailed(QueueyardError):
    """The request cannot be trained: no data, no such column, no such family, or no scikit-learn."""


@dataclass(slots=True)
class Trained:
    """What a training gave; filled as it goes on, so that a failed one still tells its configuration."""

    effective_config: Raw = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    artifacts: list[Raw] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    """A data set: numbers, and a label for each row."""

    columns: list[str]
    rows: list[list[float]]
    labels: list[str]


def effective_config(request: Raw) -> Raw:
    """Preset, model, device and data set as they are used, with every default filled in."""
    model = request["model"]
    preset = request.get("preset", "balanced")
    defaults = _DEFAULTS.get(preset, _DEFAULTS["balanced"]).get(model["family"], {})
    wished = request.get("device", {})
    on_cpu_because = wished.get("gpu_reason")
    if wished.get("type") == "gpu":
        on_cpu_because = on_cpu_because or "the model families run on the CPU"
    device = {"type": "cpu"} | ({"gpu_reason": on_cpu_because} if on_cpu_because else {})
    return {
        "preset": preset,
        "model": {
            "family": model["family"],
            "hyperparameters": {**defaults, "random_state": _SEED, **(model.get("hyperparameters") or {})},
        },
        "device": device,
        "dataset": {
            "path": request["dataset"]["path"],
            "label_column": request["dataset"]["label_column"],
        },
    }


def read_table(path: Path, label_column: str, *, max_rows: int | None = None) -> Table:
    """A CSV file with a header. TrainingFailed names the file, the line or the column that does not fit."""
    import csv  # noqa: PLC0415

    if not path.is_file():
        raise TrainingFailed(
            f"Dataset not found: {path}", hint=f"Put it there, or correct dataset.path: ls {path.parent}"
        )
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
        header = next(reader, [])
        if label_column not in header:
            raise TrainingFailed(f"Label column {label_column!r} not found; there are: {', '.join(header) or 'none'}")
        place = header.index(label_column)
        columns = [name for name in header if name != label_column]
        rows: list[list[float]] = []
        labels: list[str] = []
        for row in reader:
            if max_rows is not None and len(rows) >= max_rows:
                break
            if row:
                rows.append(_numbers(row, place, header, reader.line_num, path))
                labels.append(row[place])
    return Table(columns=columns, rows=rows, labels=labels)


def _numbers(row: Sequence[str], label_place: int, header: Sequence[str], line: int, path: Path) -> list[float]:
    if len(row) != len(header):
        raise TrainingFailed(f"{path}: line {line} has {len(row)} fields where the header has {len(header)}")
    numbers = []
    for place, text in enumerate(row):
        if place == label_place:
            continue
        try:
            numbers.append(float(text))
        except ValueError as fault:
            raise TrainingFailed(f"{path}: line {line}: column {header[place]} is not a number: {text!r}") from fault
    return numbers


def dataset_path(workspace: Path, request: Raw) -> Path:
    """Relative to the workspace, and inside it; an absolute path is taken as it is."""
    text = request["dataset"]["path"]
    return Path(text) if Path(text).is_absolute() else safe_join(workspace, text.replace("\\", "/").removeprefix("./"))


def train(
    request: Raw,
    *,
    workspace: Path,
    folder: Path,
    trained: Trained,
    say: Callable[[str], None],
    max_rows: int | None = None,
) -> None:
    """Load, train, evaluate, write artefacts; `trained` is filled on the way. TrainingFailed says what is wrong."""
    family = request["model"]["family"]
    if family not in MODEL_FAMILIES:
        raise TrainingFailed(f"Unsupported model family: {family}; supported: {', '.join(MODEL_FAMILIES)}")
    trained.effective_config = effective_config(request)
    device = trained.effective_config["device"]
    say(tokens.device(device["type"], device.get("gpu_reason")))
    say(stage(Stage.LOADING_DATASET))
    table = read_table(dataset_path(workspace, request), request["dataset"]["label_column"], max_rows=max_rows)
    say(f"Loaded {len(table.rows)} rows, {len(table.columns)} features")
    sklearn = _sklearn()
    x_train, x_test, y_train, y_test, encoder = sklearn.split(table)
    say(stage(Stage.TRAINING))
    model = sklearn.model(family, trained.effective_config["model"]["hyperparameters"])
    sklearn.fit(model, x_train, y_train, say)
    say(stage(Stage.EVALUATING))
    trained.metrics.update(sklearn.metrics(y_test, model.predict(x_test)))
    say(", ".join(f"{name} {value}" for name, value in trained.metrics.items()))
    say(stage(Stage.WRITING_ARTIFACTS))
    _write_artifacts(folder, model, encoder, trained)


def _sklearn() -> Any:
    try:
        from queueyard.runforge import sklearn_models  # noqa: PLC0415  a second to import
    except ModuleNotFoundError as fault:
        raise TrainingFailed(
            f"training needs scikit-learn, and {fault.name} is not installed",
            hint="Install it: pip install 'queueyard[ml]'",
        ) from fault
    return sklearn_models


def _write_artifacts(folder: Path, model: Any, encoder: Any | None, trained: Trained) -> None:
    import pickle  # noqa: PLC0415  the format of model.pkl

    artifacts = folder / "artifacts"
    artifacts.mkdir(exist_ok=True)
    files = [("model.pkl", "model", pickle.dumps(model)), ("metrics.json", "metrics", encode_pretty(trained.metrics))]
    if encoder is not None:
        files.append(("label_encoder.pkl", "encoder", pickle.dumps(encoder)))
    for name, kind, data in files:
        replace_file(artifacts / name, data)
        trained.artifacts.append({"path": f"artifacts/{name}", "type": kind, "bytes": len(data)})
