"""Which texts are times: the one rule by which all tables read times that stand as text. Pure; needs no Spark.

Spark reads more than a time: "12:30" as today, "2026" as its first day, and years that Python has no dates for. Here a
text is a time if the kernel calls it one (kernel.clock.from_rfc3339) and it lies in the years 2 to 9999. The year 1 is
how Go writes that there is no time, and Python cannot bring all of it into another zone.
"""

from __future__ import annotations

from typing import Final

#: A time of the last day in a zone behind UTC may lie in the year 10000.
_OUT_OF_YEARS = r"000[01]-|9999-12-31.*-\d\d:?\d\d\s*$"
#: a regular expression that Java and Python understand alike
TIME: Final = rf"^\s*(?!{_OUT_OF_YEARS})\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?\s*$"
#: the first and the last moment of these years, for times that do not stand as text
FIRST: Final = "0002-01-01 00:00:00"
LAST: Final = "9999-12-31 23:59:59.999999"


def moment_sql(column: str) -> str:
    """The time that stands in a column, in SQL; null if there is none."""
    return f"CASE WHEN {column} RLIKE r'{TIME}' THEN try_to_timestamp({column}) END"
