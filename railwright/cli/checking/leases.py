"""Tells from a Lease object whether it is held now."""

import datetime as dt
from typing import Any

from railwright.cli.checking import snapshots

_SKEW = dt.timedelta(seconds=10)  # between the clock of the holder and ours
_SECONDS = 15  # lease duration if the object has none (client-go's default)


def get_holder(lease: Any) -> str:
    """Return the holder's identity, "" if the Lease has no holder."""
    return str(snapshots.get_path(lease, "spec", "holderIdentity") or "")


def find_problem(lease: Any, now: dt.datetime) -> str:
    """Return why the Lease is not held, as a predicate to follow its name; "" while it is held."""
    identity = get_holder(lease)
    if not identity:
        return "has no holder"
    age = now - _parse_time(snapshots.get_path(lease, "spec", "renewTime"))
    if age > dt.timedelta(seconds=snapshots.get_path(lease, "spec", "leaseDurationSeconds") or _SECONDS) + _SKEW:
        return f"was last renewed by {identity} {int(age.total_seconds())} s ago and has expired"
    return ""


def _parse_time(timestamp: Any) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return dt.datetime.fromtimestamp(0, dt.UTC)
