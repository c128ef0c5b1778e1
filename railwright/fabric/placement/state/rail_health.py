"""The rails of nodes that are reported not to work: who reports it, since when, and what follows for new pods.

Reports are damped (`rail_reports`), so that states change by events and with time: `expire` returns the nodes whose
reports no longer count. What is remembered is lost with the process; reports that still exist are read again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric.placement.state import rail_reports
from railwright.fabric.policy import model

_MAX_REPORTS = 256  # of a node that are remembered: eight rails of four fabrics from eight sources
_Key = tuple[str, str, str]  # fabric, rail, source


class RailState(msgspec.Struct, frozen=True):
    """A report about a rail that counts."""

    rail: str
    source: str
    belief: model.Belief
    since: str = ""  # RFC 3339; "" if unknown
    detail: str = ""
    is_held: bool = False  # the report has ended a moment ago


class ReportedRail(NamedTuple):
    """States what the reports about a rail mean for placement. Nodes with equal ones may be of one class."""

    rail: str
    source: str  # of the report that counts most
    is_excluded: bool  # otherwise avoided


class _Remembered(NamedTuple):
    """A report of a node."""

    report: rail_reports.RailReport
    damped: rail_reports.DampedReport


_NO_STATES: Sequence[RailState] = ()
_NO_EFFECTS: tuple[ReportedRail, ...] = ()


class RailHealth:
    """The states of reported rails by node and fabric."""

    def __init__(self) -> None:
        self.version = 0  # incremented when a state has changed
        self._reports: dict[str, dict[_Key, _Remembered]] = {}  # by node
        self._states: dict[str, Mapping[str, Sequence[RailState]]] = {}  # node -> fabric
        self._effects: dict[str, Mapping[str, tuple[ReportedRail, ...]]] = {}
        self._due: dict[str, float] = {}  # node -> when a report that has ended stops to count, or is forgotten

    @property
    def nodes(self) -> Mapping[str, Mapping[str, Sequence[RailState]]]:
        """Return the states of all nodes with a report, by node and fabric."""
        return self._states

    def list_states(self, node: str, fabric: str) -> Sequence[RailState]:
        """Return the reports that count about rails of a fabric on a node, in the order of rails and sources."""
        states = self._states.get(node)
        return _NO_STATES if states is None else states.get(fabric, _NO_STATES)

    def list_effects(self, node: str, fabric: str) -> tuple[ReportedRail, ...]:
        """Return the excluded and the avoided rails of a fabric on a node."""
        effects = self._effects.get(node)
        return _NO_EFFECTS if effects is None else effects.get(fabric, _NO_EFFECTS)

    def list_all_effects(self, node: str) -> tuple[tuple[str, tuple[ReportedRail, ...]], ...]:
        """Return the fabrics with excluded or avoided rails on a node, each with these."""
        return tuple(self._effects.get(node, {}).items())

    def count(self) -> Counter[tuple[str, str, str]]:
        """Count the rails of nodes by fabric, source and belief."""
        return Counter(
            (fabric, state.source, state.belief)
            for fabrics in self._states.values()
            for fabric, states in fabrics.items()
            for state in states
        )

    def observe(
        self,
        node: str,
        reports: Mapping[_Key, rail_reports.RailReport],
        policy: rail_reports.HealthPolicy,
        now: float,
    ) -> bool:
        """Apply the present reports about a node. True if a state has changed."""
        known = self._reports.get(node, {})
        if not known and not reports:
            return False
        remembered: dict[_Key, _Remembered] = {}
        for key in dict.fromkeys((*reports, *known)):
            old = known.get(key)
            damped = rail_reports.update(
                old.damped if old else None, is_made=key in reports, now=now, limits=policy.limits
            )
            report = reports.get(key) or (old.report if old else None)
            if damped is not None and report is not None and len(remembered) < _MAX_REPORTS:
                remembered[key] = _Remembered(report, damped)
        return self._store(node, remembered, policy, now)

    def expire(self, policy: rail_reports.HealthPolicy, now: float) -> Sequence[str]:
        """Forget what no longer counts. Return the nodes of which a state has changed."""
        changed = []
        for node in [node for node, due in self._due.items() if due <= now]:
            known = self._reports[node]
            made = {key: row.report for key, row in known.items() if row.damped.is_made}
            if self.observe(node, made, policy, now):
                changed.append(node)
        return changed

    def remove(self, node: str) -> None:
        """Forget a node."""
        self.version += node in self._states
        self._drop(node)

    def _drop(self, node: str) -> None:
        for table in (self._reports, self._states, self._effects, self._due):
            table.pop(node, None)

    def _store(
        self, node: str, remembered: dict[_Key, _Remembered], policy: rail_reports.HealthPolicy, now: float
    ) -> bool:
        before = self._states.get(node, {})
        self._drop(node)
        states = _list_states(remembered, policy, now)
        self.version += states != before
        if not remembered:
            return bool(before)
        self._reports[node] = remembered
        ends = [
            row.damped.changed_at + (row.damped.hold if row.damped.counts(now) else policy.limits.max_hold)
            for row in remembered.values()
            if not row.damped.is_made
        ]
        if ends:
            self._due[node] = min(ends)
        if states:
            self._states[node] = states
            self._effects[node] = {fabric: _list_effects(own) for fabric, own in states.items()}
        return states != before


def _list_states(
    remembered: Mapping[_Key, _Remembered], policy: rail_reports.HealthPolicy, now: float
) -> Mapping[str, Sequence[RailState]]:
    states: dict[str, list[RailState]] = {}
    for (fabric, rail, source), (report, damped) in sorted(remembered.items()):
        belief = policy.beliefs.get(source)
        if belief is not None and damped.counts(now):
            is_held = not damped.is_made
            state = RailState(rail, source, belief, report.since, report.detail, is_held=is_held)
            states.setdefault(fabric, []).append(state)
    return states


def _list_effects(states: Sequence[RailState]) -> tuple[ReportedRail, ...]:
    """Return one effect for each rail: the strongest belief counts, and the first source that has it."""
    effects: dict[str, ReportedRail] = {}
    for state in states:
        is_excluded = state.belief == rail_reports.EXCLUDE
        known = effects.get(state.rail)
        if state.belief != rail_reports.IGNORE and (known is None or is_excluded > known.is_excluded):
            effects[state.rail] = ReportedRail(state.rail, state.source, is_excluded)
    return tuple(effects.values())
