"""Whether this process has seen a scheduler's running session from its start.

Volcano announces a gang task by task within one session, and tells nobody of an earlier task again. An extender that
starts in the middle of a gang cannot know where its first pods are, and would plan the rest as if they were nowhere.
Answering one of the rest with an error takes the gang back; the next session, a moment later, places it whole.
"""

from railwright.fabric import workload
from railwright.fabric.placement import crew, fleet, ledger

_KEPT = 1000  # scopes and gangs remembered; paths are the callers', so they must not grow without end


class Sessions:
    """The scopes whose sessions are known from their start, and the gangs that were sent back once."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._sent_back: set[workload.GangKey] = set()

    def ended(self, scope: str) -> None:
        """A session of this scope has closed: the next one is seen whole."""
        if len(self._ended) < _KEPT:
            self._ended.add(scope)

    def sends_back(self, scope: str, entry: ledger.Entry, state: fleet.Fleet, book: ledger.Ledger) -> bool:
        """True, once a gang, where mates that the running session has passed already are placed nobody knows where."""
        if scope in self._ended or entry.state is not ledger.State.ALLOCATED or len(self._sent_back) >= _KEPT:
            return False
        if entry.gang in self._sent_back or not _passed_unseen(entry, state, book):
            return False
        self._sent_back.add(entry.gang)
        return True


def _passed_unseen(entry: ledger.Entry, state: fleet.Fleet, book: ledger.Ledger) -> bool:
    """True where a mate of a lower index is neither bound nor announced; Volcano goes by index, not role."""
    return any(mate.rank.index < entry.rank.index for mate in crew.unplaced(entry.gang, state, book))
