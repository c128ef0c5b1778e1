"""Which nodes lack a domain label, for the operator to mend: such nodes are placed on last.

Owns what counts as a gap. Only nodes that could take part in a fabric are looked at (they have an accelerator or a
device of its rails), and of a preset only the levels that exist here: its labels name as many as anybody's fabric has.
"""

from collections.abc import Mapping

from railwright.fabric import topology
from railwright.fabric.placement import fleet, rails
from railwright.fabric.policy import model, presets

Gaps = Mapping[str, tuple[str, ...]]
"""Names of the nodes without a value, sorted, for each domain key of the policy."""


def gaps(document: model.FabricPolicy, state: fleet.Fleet, pools: Mapping[tuple[str, str], str]) -> Gaps:
    """The gaps of all fabrics; `pools` as in rails.counted."""
    found: dict[str, set[str]] = {}
    for each in document.fabrics.values():
        fabric = rails.counted(each, pools)
        for key, names in _of_fabric(fabric, document, state).items():
            found.setdefault(key, set()).update(names)
    return {key: tuple(sorted(names)) for key, names in found.items()}


def _of_fabric(fabric: model.Fabric, document: model.FabricPolicy, state: fleet.Fleet) -> Mapping[str, list[str]]:
    keys = presets.domains(fabric.placement)
    resources = {*document.accelerators, *(rail.resource for rail in fabric.rails if rail.resource)}
    missing: dict[str, list[str]] = {key: [] for key in keys}
    deepest = 0
    for node in state.nodes.values():
        has = {name for name in resources if node.capacity.get(name, 0) > 0 or node.allocatable.get(name, 0) > 0}
        if not has:
            continue
        own = [rail.name for rail in fabric.rails if rail.resource is None or rail.resource in has]
        place = state.place(node, keys, own)
        for level, key in enumerate(keys):
            if place[level]:
                deepest = max(deepest, level)
            if not place[level] or not all(map(node.labels.get, _labels(key, own))):
                missing[key].append(node.name)
    shown = keys if fabric.placement.domains else keys[: deepest + 1]
    return {key: missing[key] for key in shown}


def _labels(key: str, own: list[str]) -> list[str]:
    """The labels a node with these rails should have for a per-rail key."""
    return [*topology.per_rail(key, own)] if topology.RAIL in key else []
