"""Training requests: the table, the defaults of a preset, and (with the extra `ml`) real models."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.errors import UnsafePath
from queueyard.runforge.training import Trained, TrainingFailed, dataset_path, effective_config, read_table, train

if TYPE_CHECKING:
    from pathlib import Path


def request(family: str = "logistic_regression", **more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "preset": "fast",
        "dataset": {"path": "data.csv", "label_column": "kind"},
        "model": {"family": family, "hyperparameters": {}},
        "device": {"type": "cpu"},
        **more,
    }


def needs_sklearn() -> None:
    if importlib.util.find_spec("sklearn") is None:
        reason = "scikit-learn is not installed: pip install 'queueyard[ml]'"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def write_table(folder: Path, rows: int = 40) -> None:
    lines = ["x,y,kind"] + [f"{n % 7},{n % 5},{'big' if n % 7 > 3 else 'small'}" for n in range(rows)]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")


class TestTable:
    def test_numbers_and_labels_are_told_apart(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("a,label,b\n1,x,2.5\n\n3,y,-4e1\n")

        table = read_table(tmp_path / "t.csv", "label")

        assert (table.columns, table.rows, table.labels) == (["a", "b"], [[1.0, 2.5], [3.0, -40.0]], ["x", "y"])

    def test_only_so_many_rows_are_read_as_are_wanted(self, tmp_path: Path) -> None:
        write_table(tmp_path)

        assert len(read_table(tmp_path / "data.csv", "kind", max_rows=7).rows) == 7

    @pytest.mark.parametrize(
        ("content", "fault"),
        [
            (None, "Dataset not found"),
            ("", "Label column 'label' not found; there are: none"),
            ("a,b\n1,2\n", "Label column 'label' not found; there are: a, b"),
            ("a,label\n1,x\n2\n", "line 3 has 1 fields where the header has 2"),
            ("a,label\n1,x\nhigh,y\n", "line 3: column a is not a number: 'high'"),
        ],
    )
    def test_what_does_not_fit_is_named(self, tmp_path: Path, content: str | None, fault: str) -> None:
        if content is not None:
            (tmp_path / "t.csv").write_text(content)

        with pytest.raises(TrainingFailed, match=fault):
            read_table(tmp_path / "t.csv", "label")

    def test_a_data_set_is_inside_the_workspace(self, tmp_path: Path) -> None:
        inside = dataset_path(tmp_path, request(dataset={"path": "deep\\data.csv", "label_column": "x"}))

        assert inside == tmp_path / "deep" / "data.csv"
        with pytest.raises(UnsafePath):
            dataset_path(tmp_path, request(dataset={"path": "../elsewhere.csv", "label_column": "x"}))


class TestConfiguration:
    @pytest.mark.parametrize(("preset", "trees"), [("fast", 50), ("balanced", 100), ("thorough", 300), ("custom", 100)])
    def test_a_preset_fills_in_what_the_request_leaves_open(self, preset: str, trees: int) -> None:
        config = effective_config(request("random_forest", preset=preset))

        assert config["model"]["hyperparameters"]["n_estimators"] == trees
        assert config["model"]["hyperparameters"]["random_state"] == 42

    def test_the_request_wins(self) -> None:
        model = {"family": "random_forest", "hyperparameters": {"n_estimators": 7, "random_state": 1}}

        hyperparameters = effective_config(request(model=model))["model"]["hyperparameters"]

        assert (hyperparameters["n_estimators"], hyperparameters["random_state"]) == (7, 1)

    def test_a_gpu_that_cannot_be_used_is_explained(self) -> None:
        device = effective_config(request(device={"type": "gpu"}))["device"]

        assert device["type"] == "cpu"
        assert "CPU" in device["gpu_reason"]


class TestTraining:
    @pytest.mark.parametrize("family", ["logistic_regression", "random_forest", "linear_svc"])
    def test_every_family_learns_and_leaves_its_artefacts(self, tmp_path: Path, family: str) -> None:
        needs_sklearn()
        write_table(tmp_path)
        trained = Trained()
        said: list[str] = []

        train(request(family), workspace=tmp_path, folder=tmp_path, trained=trained, say=said.append)

        assert set(trained.metrics) == {"accuracy", "precision", "recall", "f1_score"}
        assert trained.metrics["accuracy"] >= 0.5
        assert json.loads((tmp_path / "artifacts" / "metrics.json").read_bytes()) == trained.metrics
        assert {one["path"] for one in trained.artifacts} == {
            "artifacts/model.pkl",
            "artifacts/metrics.json",
            "artifacts/label_encoder.pkl",
        }
        stages = [line for line in said if line.startswith("[RF:STAGE")]
        assert stages == [
            f"[RF:STAGE={name}]" for name in ("LOADING_DATASET", "TRAINING", "EVALUATING", "WRITING_ARTIFACTS")
        ]
        assert any(line.startswith("[RF:EPOCH=1/") for line in said)

    def test_the_same_request_gives_the_same_metrics(self, tmp_path: Path) -> None:
        needs_sklearn()
        write_table(tmp_path)
        first, second = Trained(), Trained()

        for trained in (first, second):
            train(request("random_forest"), workspace=tmp_path, folder=tmp_path, trained=trained, say=lambda _: None)

        assert first.metrics == second.metrics

    def test_an_unknown_family_is_refused_with_those_that_are_known(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingFailed, match="Unsupported model family: magic; supported: logistic_regression"):
            train(request("magic"), workspace=tmp_path, folder=tmp_path, trained=Trained(), say=lambda _: None)

    def test_without_scikit_learn_the_extra_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_table(tmp_path)
        monkeypatch.setitem(sys.modules, "numpy", None)
        monkeypatch.delitem(sys.modules, "queueyard.runforge.sklearn_models", raising=False)
        monkeypatch.delattr("queueyard.runforge.sklearn_models", raising=False)

        with pytest.raises(TrainingFailed, match="needs scikit-learn") as caught:
            train(request(), workspace=tmp_path, folder=tmp_path, trained=Trained(), say=lambda _: None)

        assert "queueyard[ml]" in str(caught.value.hint)
