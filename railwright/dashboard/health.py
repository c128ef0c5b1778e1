"""Describes how current the data of a dashboard is: unreachable, being read, incomplete, or current."""

import datetime as dt
import pathlib

from railwright.cluster import sources
from railwright.fabric.overview import overview_types

_STALE_SECONDS = 150.0  # an idle watch gets a bookmark each minute; more than two are missing


def describe(
    origin: sources.Sources, *, poll_failure: str = "", policy: pathlib.Path | None = None
) -> overview_types.Connection:
    """Return the state of the sources. `poll_failure`: error of a poll of the API server. `policy`: its file."""
    away = origin.find_outage() or poll_failure
    return overview_types.Connection(
        problems=_list_problems(origin, away),
        away=away,
        is_refused=origin.is_refused(),
        reading=tuple(origin.list_unread()),
        policy_name=origin.policy_objects.holder if policy is None else policy.name,
        policy_at=origin.policy_objects.created_at if policy is None else _read_modification_time(policy),
    )


def _list_problems(origin: sources.Sources, away: str) -> tuple[str, ...]:
    if away:  # the cause of all other problems
        return (away,)
    if origin.list_unread():  # the policy may be among them
        return tuple(origin.list_missing())
    problems = (origin.find_policy_problem(), *origin.list_missing(), *origin.list_late(_STALE_SECONDS))
    return tuple(filter(None, problems))


def _read_modification_time(path: pathlib.Path) -> str:
    try:
        modified = path.stat().st_mtime
    except OSError:
        return ""
    return dt.datetime.fromtimestamp(modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
