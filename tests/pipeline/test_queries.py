"""Questions in SQL: every table by its name, and only those that are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.pipeline.errors import BadQuery
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.queries import ask
from queueyard.pipeline.warehouse import VIEW_NAMES, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed


@pytest.fixture
def house(spark: SparkSession, undisturbed: Undisturbed) -> Warehouse:
    return Warehouse(spark, str(undisturbed.home))


def test_a_question_may_join_views_and_gold_however_their_names_are_written(house: Warehouse) -> None:
    sql = "SELECT count(*) FROM EVENTS AS e JOIN `summary` s ON e.system = s.system AND date(e.at) = s.day"

    columns, [(joined,)] = ask(house, sql, limit=10)

    assert columns == ["count(1)"]
    assert joined == house.view("events").count()


def test_nothing_is_written_of_what_spark_is_told_on_the_way(
    house: Warehouse, capfd: pytest.CaptureFixture[str]
) -> None:
    ask(house, "SELECT * FROM summary", limit=1)

    assert capfd.readouterr() == ("", "")


def test_a_name_that_the_question_gives_itself_is_its_own(house: Warehouse) -> None:
    assert ask(house, "WITH events AS (SELECT 7 AS n) SELECT n FROM events", limit=10)[1] == [(7,)]


def test_every_table_is_shown_to_who_asks_for_all(house: Warehouse) -> None:
    shown = {name for _, name, *_ in ask(house, " show tables", limit=100)[1]}

    assert shown == {*VIEW_NAMES, *(metric.name for metric in METRICS), "violations"}


@pytest.mark.parametrize("sql", ["SELECT * FROM summary", "SHOW TABLES"])
def test_nothing_of_a_question_is_left_for_the_next_one(house: Warehouse, sql: str) -> None:
    ask(house, sql, limit=1)

    assert house.spark.catalog.listTables() == []


def test_nothing_is_left_of_one_that_was_refused_either(house: Warehouse) -> None:
    with pytest.raises(BadQuery, match="nothing"):
        ask(house, "SELECT * FROM summary, nothing", limit=1)

    assert house.spark.catalog.listTables() == []
