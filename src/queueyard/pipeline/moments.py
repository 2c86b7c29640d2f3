"""Which texts are times: the one rule by which all tables read times that stand as text. Pure; needs no Spark.

Spark reads more than a time: "12:30" as today, "2026" as its first day, and years that Python has no dates for. Here a
text is a time if the kernel calls it one (kernel.clock.from_rfc3339), and if it lies in the years 1 to 9999 of UTC.
"""

from __future__ import annotations

from typing import Final

#: A time of the first or the last day with a zone may lie in the year before or behind it.
_OUT_OF_YEARS = r"0000-|0001-01-01.*\+\d\d:?\d\d\s*$|9999-12-31.*-\d\d:?\d\d\s*$"
#: a regular expression that Java and Python understand alike
TIME: Final = rf"^\s*(?!{_OUT_OF_YEARS})\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?\s*$"
#: the first and the last moment of these years, for times that do not stand as text
FIRST: Final = "0001-01-01 00:00:00"
LAST: Final = "9999-12-31 23:59:59.999999"


def moment_sql(column: str) -> str:
    """The time that stands in a column, in SQL; null if there is none."""
    return f"CASE WHEN {column} RLIKE r'{TIME}' THEN try_to_timestamp({column}) END"
