"""Whether a Lease is held now, read from the object alone. Judges no row."""

import datetime as dt
from typing import Any

from railwright.cli.checking import seen as sight

_SKEW = dt.timedelta(seconds=10)  # between the clock of the holder and ours
_SECONDS = 15  # a Lease holds where it does not say (client-go's default)


def holder(lease: Any) -> str:
    """Who holds it, "" where nobody does."""
    return str(sight.dig(lease, "spec", "holderIdentity") or "")


def problem(lease: Any, now: dt.datetime) -> str:
    """What is wrong with it, after its name; "" while it is held."""
    who = holder(lease)
    if not who:
        return "has no holder"
    age = now - _time(sight.dig(lease, "spec", "renewTime"))
    if age > dt.timedelta(seconds=sight.dig(lease, "spec", "leaseDurationSeconds") or _SECONDS) + _SKEW:
        return f"was renewed by {who} {int(age.total_seconds())} s ago, and nobody took it over"
    return ""


def _time(written: Any) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(str(written))
    except ValueError:
        return dt.datetime.fromtimestamp(0, dt.UTC)
