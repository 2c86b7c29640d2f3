"""The part of training that needs scikit-learn; imported only by `training`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from queueyard.runforge import tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.runforge.training import Table

# By name: neither library has types, and type checking must not need them installed.
_numpy: Any = import_module("numpy")
_scores: Any = import_module("sklearn.metrics")
_selection: Any = import_module("sklearn.model_selection")
_pipeline: Any = import_module("sklearn.pipeline")
_preprocessing: Any = import_module("sklearn.preprocessing")

_FAMILIES = {
    "logistic_regression": ("sklearn.linear_model", "LogisticRegression"),
    "random_forest": ("sklearn.ensemble", "RandomForestClassifier"),
    "linear_svc": ("sklearn.svm", "LinearSVC"),
}
_MOST_EPOCHS = 10


def split(table: Table) -> tuple[Any, Any, Any, Any, Any]:
    """Four fifths to learn from and one to be judged by; texts as labels are numbered by the encoder that is last."""
    encoder = None
    try:
        labels = _numpy.array([float(one) for one in table.labels])
    except ValueError:
        encoder = _preprocessing.LabelEncoder()
        labels = encoder.fit_transform(table.labels)
    rows = _numpy.array(table.rows)
    parts = _selection.train_test_split(rows, labels, test_size=0.2, random_state=42, stratify=labels)
    return (*parts, encoder)


def model(family: str, hyperparameters: dict[str, Any]) -> Any:
    """The numbers brought to one scale, then the model."""
    module, name = _FAMILIES[family]
    estimator = getattr(import_module(module), name)(**hyperparameters)
    return _pipeline.Pipeline([("scaler", _preprocessing.StandardScaler()), ("model", estimator)])


def fit(pipeline: Any, x: Any, y: Any, say: Callable[[str], None]) -> None:
    """Train; a forest in up to ten steps that really grow it, the others in one."""
    estimator = pipeline.named_steps["model"]
    trees = getattr(estimator, "n_estimators", 0)
    epochs = max(1, min(_MOST_EPOCHS, trees // 10))
    for number in range(1, epochs + 1):
        if epochs > 1:
            estimator.set_params(warm_start=True, n_estimators=trees * number // epochs)
        pipeline.fit(x, y)
        say(tokens.epoch(number, epochs))


def metrics(truth: Any, told: Any) -> dict[str, float]:
    """The four of metrics.json, rounded to four places."""
    weighted: dict[str, Any] = {"average": "weighted", "zero_division": 0}
    values = {
        "accuracy": _scores.accuracy_score(truth, told),
        "precision": _scores.precision_score(truth, told, **weighted),
        "recall": _scores.recall_score(truth, told, **weighted),
        "f1_score": _scores.f1_score(truth, told, **weighted),
    }
    return {name: round(float(value), 4) for name, value in values.items()}
