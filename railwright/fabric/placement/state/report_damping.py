"""Damps reports that come and go: a report still counts for some time after it has ended, longer each time it returns.

For example, with holds of 60 s, doubled up to 1,800 s: a link that is down for a moment every 50 s is out without a
break. One that is down every five minutes is out for 60, 120, 240 and then all of the 300 s. After 1,800 s without a
report the next one is the first again.
"""

from typing import NamedTuple


class Limits(NamedTuple):
    """Shortest and longest time, in seconds, for which a report still counts after it has ended."""

    hold: float
    max_hold: float


class DampedReport(NamedTuple):
    """A report that was made before, and may have ended."""

    is_made: bool
    changed_at: float  # when it was made or ended
    hold: float  # seconds for which it still counts after it has ended

    def counts(self, now: float) -> bool:
        """True if the report counts at this time."""
        return self.is_made or now - self.changed_at < self.hold

    def is_forgotten(self, now: float, limits: Limits) -> bool:
        """True if the next report counts as the first one."""
        return not self.is_made and now - self.changed_at >= max(limits.max_hold, self.hold)


def update(known: DampedReport | None, *, is_made: bool, now: float, limits: Limits) -> DampedReport | None:
    """Return what is known of a report after an observation. None: nothing needs to be remembered."""
    if known is None or known.is_forgotten(now, limits):
        return DampedReport(is_made=True, changed_at=now, hold=limits.hold) if is_made else None
    if known.is_made == is_made:
        return known
    if not is_made:
        return known._replace(is_made=False, changed_at=now)
    return DampedReport(is_made=True, changed_at=now, hold=min(2 * known.hold, max(limits.max_hold, limits.hold)))
