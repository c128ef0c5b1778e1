"""Events about gangs, on their PodGroup where they have one, else on their first pod: where people look first.

Owns the reason words and which outcomes become Events: a gang that cannot be placed, one whose pods were admitted under
different versions of the policy, one that was placed worse than had been possible, and one that was placed as well as
possible and still not at full bandwidth. Knows no plan; the sentences come with the outcomes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from extender import gangs
from railwright.cluster import events, sinks, sources
from railwright.fabric import workload
from railwright.fabric.placement import account, landing, sizes

UNPLACEABLE, SPREAD, DEGRADED, LIMITED = "GangUnplaceable", "GangSpread", "GangDegraded", "GangLimited"  # stable
MIXED = "GangMixedPolicies"
_WARNINGS = {gangs.UNPLACEABLE: UNPLACEABLE, landing.SPREAD: SPREAD, landing.DEGRADED: DEGRADED, gangs.MIXED: MIXED}


class PodGroups:
    """The PodGroups there are, by gang, as an Event refers to them."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, events.Involved]] = {}  # API version -> gang

    def beside(self, wanted: sources.Wanted) -> sources.Wanted:
        """The same source, its PodGroups remembered here as well; any other kind as it is."""
        if not wanted.kind.path.endswith("/podgroups"):
            return wanted
        version = "/".join(wanted.kind.path.split("/")[2:4])
        known = self._known.setdefault(version, {})
        return msgspec.structs.replace(wanted, sink=_Beside(wanted.sink, known, version))

    def of(self, gang: workload.GangKey) -> events.Involved | None:
        """The PodGroup that makes a gang; None where none does."""
        return next((known[gang] for known in self._known.values() if gang in known), None)


class _Beside:
    """Hands everything on to a sink, and remembers the PodGroups."""

    def __init__(self, sink: sinks.Sink[Any], known: dict[str, events.Involved], version: str) -> None:
        self._sink, self._known, self._version = sink, known, version

    def replace(self, objects: Sequence[sizes.Sized]) -> None:
        self._known.clear()
        for each in objects:
            self._remember(each)
        self._sink.replace(objects)

    def upsert(self, obj: sizes.Sized) -> None:
        self._remember(obj)
        self._sink.upsert(obj)

    def remove(self, obj: sizes.Sized) -> None:
        self._known.pop(_key(obj), None)
        self._sink.remove(obj)

    def _remember(self, group: sizes.Sized) -> None:
        meta = group.metadata
        self._known[_key(group)] = events.Involved(
            kind="PodGroup", api_version=self._version, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )


def _key(group: sizes.Sized) -> str:
    return f"{group.metadata.namespace}/{group.metadata.name}"


def telling(posting: events.Events | None, groups: PodGroups) -> Callable[[gangs.Outcome], None]:
    """Turns outcomes into queued Events; into nothing where there is no cluster to tell."""

    def tell(outcome: gangs.Outcome) -> None:
        reason = _WARNINGS.get(outcome.word) or (LIMITED if outcome.bandwidth < account.FULL else "")
        if posting is None or not reason:
            return
        about = groups.of(outcome.gang) or events.Involved(
            kind="Pod", api_version="v1", namespace=outcome.namespace, name=outcome.pod, uid=outcome.uid
        )
        posting.post(about, warning=outcome.word in _WARNINGS, reason=reason, message=outcome.message)

    return tell
