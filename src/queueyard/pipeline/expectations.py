"""What the tables are expected to be, as data: one condition per rule, in SQL. Needs no Spark.

A rule is broken by a row for which its condition is false; a condition that is null says nothing against the row. The
columns are those of the view that quality.py makes for the rule's table.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.events import Kind, System
from queueyard.ops.records import FeedOp
from queueyard.pipeline.moments import moment_sql
from queueyard.queen.records import AssignmentStatus, Importance, ReservationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

#: a clock may be ahead of ours by so much
MOST_AHEAD_MINUTES = 5


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One expectation."""

    table: str
    name: str
    #: true for every row that is as it should be
    holds: str
    #: what is wrong with the others, for people
    sentence: str


def _rules(table: str, **rules: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple(
        Rule(table=table, name=name, holds=holds, sentence=sentence) for name, (holds, sentence) in rules.items()
    )


def _one_of(column: str, values: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


def _in_order(*columns: str) -> str:
    """Each column that is not null is not below the one before it."""
    pairs = [f"coalesce({first} <= {second}, true)" for first, second in pairwise(columns)]
    return " AND ".join(pairs)


def _never_below_zero(*columns: str) -> str:
    return f"least({', '.join(columns)}) >= 0"


def _readable(*columns: str) -> str:
    return " AND ".join(f"(coalesce({one}, '') = '' OR {moment_sql(one)} IS NOT NULL)" for one in columns)


_FLOW = ("queued", "started", "succeeded", "failed", "conflicted", "canceled")
_JAIN = ("jain_services", "jain_run")
_FAR_PAST = "timestamp'2000-01-01 00:00:00'"

_SILVER = (
    *_rules(
        "silver/events",
        id_is_a_ulid=("coalesce(id RLIKE '^[0-7][0-9A-HJKMNP-TV-Z]{25}$', false)", "The id of the event is no ULID."),
        known_kind=(_one_of("kind", Kind), "The kind of the event is not in the vocabulary."),
        known_system=(_one_of("system", System), "The event belongs to none of the five systems."),
        attempt_counts_from_one=("attempt >= 1", "The number of the attempt is below 1."),
        has_a_time=(f"at >= {_FAR_PAST}", "The record names no time, so the event is dated to the distant past."),
        not_in_the_future=(
            f"at <= ingested_at + INTERVAL {MOST_AHEAD_MINUTES} MINUTES",
            f"It is dated more than {MOST_AHEAD_MINUTES} minutes behind its reading: somebody's clock is ahead.",
        ),
    ),
    *_rules(
        "silver/items",
        first_before_last=("first_at <= last_at", "The first event of the item is later than its last one."),
        has_events=("events >= 1 AND attempts >= 1", "The item has no event or no attempt."),
    ),
    *_rules(
        "silver/attempts",
        queued_before_started=("queued_at <= started_at", "The attempt started before it was queued."),
        started_before_finished=("started_at <= finished_at", "The attempt finished before it started."),
        queued_before_finished=("queued_at <= finished_at", "The attempt finished before it was queued."),
        ended_with_an_outcome=(
            "(outcome IS NULL) = (finished_at IS NULL)",
            "The attempt has an end and no outcome, or an outcome and no end.",
        ),
        has_an_item=("is_item", "The attempt belongs to an item that is not there."),
        never_below_zero=(
            "stalls >= 0 AND coalesce(duration_ms, 0) >= 0 AND coalesce(wasted_ms, 0) >= 0 AND attempt >= 1",
            "A count or a length of the attempt is below zero.",
        ),
    ),
    *_rules(
        "silver/messages",
        has_both_ends=(
            "coalesce(`from`, '') != '' AND coalesce(`to`, '') != ''",
            "The message has no sender or reader.",
        ),
        times_are_readable=(
            _readable("created_at", "read_at", "deleted_at"),
            "A time of the message cannot be read.",
        ),
        sent_before_read=(
            f"{moment_sql('created_at')} <= {moment_sql('read_at')}",
            "The message was read before it was sent.",
        ),
        known_importance=(f"coalesce({_one_of('importance', Importance)}, true)", "Its importance is no known one."),
        answers_a_known_message=("is_answer_to_known", "It answers a message that is not there."),
    ),
    *_rules(
        "silver/assignments",
        has_an_agent=("coalesce(agent, '') != '' OR coalesce(droid, '') != ''", "The assignment is nobody's."),
        known_status=(f"coalesce({_one_of('status', AssignmentStatus)}, true)", "Its status is no known one."),
        times_are_readable=(
            _readable("created_at", "updated_at"),
            "A time of the assignment cannot be read.",
        ),
        made_before_changed=(
            f"{moment_sql('created_at')} <= {moment_sql('updated_at')}",
            "It was changed before it was made.",
        ),
    ),
    *_rules(
        "silver/reservations",
        has_a_pattern=("coalesce(pattern, '') != ''", "The reservation names no files."),
        known_status=(f"coalesce({_one_of('status', ReservationStatus)}, true)", "Its status is no known one."),
        times_are_readable=(
            _readable("created_at", "expires_at", "released_at"),
            "A time of the reservation cannot be read.",
        ),
        made_before_released=(
            f"{moment_sql('created_at')} <= {moment_sql('released_at')}",
            "It was released before it was made.",
        ),
        made_before_expired=(
            f"{moment_sql('created_at')} <= {moment_sql('expires_at')}",
            "It had expired when it was made.",
        ),
    ),
    *_rules(
        "silver/file_versions",
        version_counts_from_one=("version >= 1 AND seq >= 1", "The version or its place in the feed is below 1."),
        known_op=(_one_of("op", FeedOp), "What was done to the file is no known op."),
        never_below_zero=("bytes >= 0", "The size of the file is below zero."),
    ),
    *_rules(
        "silver/files", newest_is_a_version=("is_version", "The newest version of the file is not among its versions.")
    ),
)

_GOLD = (
    *_rules("gold/throughput", never_below_zero=(_never_below_zero(*_FLOW), "A count is below zero.")),
    *_rules(
        "gold/durations",
        percentiles_in_order=(_in_order("p50_s", "p90_s", "p95_s", "p99_s", "max_s"), "Percentiles are out of order."),
        mean_within=("mean_s BETWEEN 0 AND max_s", "The mean is below zero or above the longest."),
        has_attempts=("attempts >= 1", "The row is made of no attempts."),
    ),
    *_rules(
        "gold/failures",
        items_within=("items BETWEEN 1 AND failures", "There are more items than failures, or none."),
        first_before_last=("first_at <= last_at", "The first failure is later than the last one."),
    ),
    *_rules(
        "gold/retries",
        items_within=("retried_items BETWEEN 0 AND retried", "More items were retried than there are retries."),
        never_below_zero=(_never_below_zero("started", "stalled", "released"), "A count is below zero."),
    ),
    *_rules(
        "gold/fairness",
        jain_within=(
            " AND ".join(f"coalesce({name} * groups > 0.999999 AND {name} < 1.000001, true)" for name in _JAIN),
            "An index of fairness is below 1/n or above 1.",
        ),
        never_below_zero=("services >= 0 AND coalesce(run_s, 0) >= 0", "A count or a length is below zero."),
    ),
    *_rules(
        "gold/landing",
        timed_within=("timed BETWEEN 0 AND landed", "More landings were timed than there are."),
        wasted_within=("wasted_checks BETWEEN 0 AND checks", "More checks were wasted than there are."),
        percentiles_in_order=(_in_order("land_p50_s", "land_p95_s", "land_max_s"), "Percentiles are out of order."),
        shares=("wasted_share BETWEEN 0 AND 1", "A share is below 0 or above 1."),
    ),
    *_rules(
        "gold/agents",
        answered_within=("answered BETWEEN 0 AND received", "More messages were answered than received."),
        unread_within=("unread BETWEEN 0 AND received", "More messages are unread than were received."),
        assignments_within=(
            "open_assignments + completed <= assignments",
            "More assignments are open or completed than there are.",
        ),
        percentiles_in_order=(_in_order("response_p50_s", "response_p95_s"), "Percentiles are out of order."),
    ),
    *_rules(
        "gold/contention",
        two_agents=("holder != waiter", "An agent waits for itself."),
        blocking_within=("blocking_overlaps BETWEEN 0 AND overlaps", "More overlaps block than there are."),
        never_below_zero=("overlap_s >= 0", "A length is below zero."),
    ),
    *_rules(
        "gold/sync",
        percentiles_in_order=(_in_order("lag_p50_s", "lag_p95_s", "lag_max_s"), "Percentiles are out of order."),
        shares=("conflict_rate BETWEEN 0 AND 1", "A share is below 0 or above 1."),
        files_within=("files_changed BETWEEN 0 AND versions", "More files changed than there are versions."),
    ),
    *_rules(
        "gold/summary",
        shares=("success_rate BETWEEN 0 AND 1", "A share is below 0 or above 1."),
        percentiles_in_order=(
            f"{_in_order('wait_p50_s', 'wait_p95_s')} AND {_in_order('run_p50_s', 'run_p95_s')}",
            "Percentiles are out of order.",
        ),
        items_within=("items BETWEEN 1 AND events", "There are more items than events, or none."),
    ),
)

#: about the sums of whole tables, which are made one row for this
TOTALS = (
    *_rules(
        "silver/items",
        events_add_up=("counted = told", "The items count another number of events than there are."),
    ),
    *_rules(
        "gold/throughput",
        grains_add_up=(
            "minutes = hours AND hours = days",
            "Minutes, hours and days count different numbers of events.",
        ),
    ),
    *_rules(
        "gold/summary",
        agrees_with_throughput=("summarised = counted", "It counts another number of events than throughput does."),
    ),
)
RULES = (*_SILVER, *_GOLD)
#: broken where a table has other columns than this version writes; found in the log, not in rows
SCHEMA_RULE = "has_these_columns"
_SENTENCES = {(rule.table, rule.name): rule.sentence for rule in (*RULES, *TOTALS)}


def sentence_of(table: str, rule: str) -> str:
    """What a broken rule means; a rule of another version has no sentence here."""
    if rule == SCHEMA_RULE:
        return "The table has other columns than this version writes."
    return _SENTENCES.get((table, rule), "")
