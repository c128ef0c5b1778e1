"""Reads reports that rails of nodes do not work: from node conditions, preflights, device counts and slices.

A reader is a function and its row of READERS. Conditions name NICs, which are mapped to rails by the
policy and by ResourceSlices. Their texts are written by others, so that lengths and counts are limited. The policy says
by source what follows from a report.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, names, node_views, text, views
from railwright.fabric.claims import drivers, inventory
from railwright.fabric.placement.state import object_info
from railwright.fabric.policy import model

UNHEALTHY, TAINTED, MISSING = "DeviceUnhealthy", "DeviceTainted", "DeviceMissing"
LINK_DOWN, PREFLIGHT = "LinkDown", "PreflightFailed"
IGNORE, AVOID, EXCLUDE = "ignore", "avoid", "exclude"
BELIEFS: Mapping[str, model.Belief] = {  # unless the policy says otherwise
    UNHEALTHY: "avoid",
    TAINTED: "avoid",
    MISSING: "avoid",
    LINK_DOWN: "avoid",  # an interface that is down on the node may be set up with the pod
    PREFLIGHT: "avoid",  # any container may write it
    # NVSentinel, health-monitors/nic-health-monitor/pkg/checks/types.go
    "InfiniBandStateCheck": "exclude",
    "EthernetStateCheck": "exclude",
    "EFAStateCheck": "exclude",
    "InfiniBandDegradationCheck": "avoid",
    "EthernetDegradationCheck": "avoid",
    "EFADegradationCheck": "avoid",
    "InfiniBandCharDeviceCheck": "avoid",  # false on GB300 without issm devices (NVSentinel issues 1663 and 1716)
}


class RailReport(msgspec.Struct, frozen=True):
    """A report that a rail of a node does not work."""

    fabric: str
    rail: str
    source: str
    since: str = ""  # RFC 3339; "" if unknown
    detail: str = ""


# --- texts that name NICs -------------------------------------------------------------------------------------

_KUBERNETES = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_MAX_CONDITIONS = 16  # of a node that report a fault
_MAX_MESSAGE = 8192  # characters of a condition's message
_MAX_ENTRIES = 64  # of a message; NVSentinel separates them by semicolons
_MAX_NAMES = 64  # of an entry that may be names of NICs
_MAX_DETAIL = 160  # characters
_CUT = "..."  # at the end of a message of NVSentinel that was too long
_NIC = "NIC:"  # before the name in an entry of NVSentinel: "ErrorCode:umad NIC:mlx5_3 NICPort:1 ..."
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")


class NamedNics(msgspec.Struct, frozen=True, gc=False):
    """A report that names NICs."""

    source: str
    names: tuple[str, ...]  # words that may be names of NICs
    since: str = ""
    detail: str = ""
    fabric: str = ""  # of which the rails are; "" for any


def read_conditions(node: node_views.Node) -> tuple[NamedNics, ...]:
    """Return the reports in the conditions of a node. Most nodes have none."""
    faults = [
        condition
        for condition in node.status.conditions or ()
        if condition.status == "True" and condition.type not in _KUBERNETES
    ]
    return tuple([report for condition in faults[:_MAX_CONDITIONS] for report in _read_condition(condition)])


def _read_condition(condition: node_views.NodeCondition) -> Iterator[NamedNics]:
    message = condition.message[:_MAX_MESSAGE]
    entries = [entry for entry in message.split(";", _MAX_ENTRIES)[:_MAX_ENTRIES] if entry.strip() not in ("", _CUT)]
    is_cut = len(message) < len(condition.message) or message.endswith(_CUT)
    for number, entry in enumerate(entries, 1):
        nics = _find_names(entry, is_cut=is_cut and number == len(entries))
        if nics:
            since, detail = condition.last_transition_time or "", text.limit(entry.strip(), _MAX_DETAIL)
            yield NamedNics(condition.type, nics, since, detail)


def _find_names(entry: str, *, is_cut: bool) -> tuple[str, ...]:
    """Return the words of an entry that may be names of NICs. The last word of one that `is_cut` may be incomplete."""
    words = _WORD.findall(entry)[: -1 if is_cut else None]
    named = [word[len(_NIC) :] for word in words if word.startswith(_NIC)]
    plain = named or [word.rstrip(".:-") for word in words]
    return tuple(dict.fromkeys(word for word in plain if any(map(str.isdigit, word)) and len(word) < 64))[:_MAX_NAMES]


def read_preflight(pod: views.Pod) -> NamedNics | None:
    """Return the rails that the preflight of an injected pod has found out of order; None if it has not."""
    for status in pod.status.init_container_statuses or ():
        ends = [state.terminated for state in (status.state, status.last_state) if state and state.terminated]
        if status.name != names.PREFLIGHT_CONTAINER or not ends:
            continue
        lines = ends[0].message[:_MAX_MESSAGE].splitlines()
        broken = next((line for line in lines if line.startswith(names.PREFLIGHT_BROKEN)), "")
        rails = broken[len(names.PREFLIGHT_BROKEN) :].split(",")[:_MAX_NAMES] if broken else []
        record = intent.read_record(pod)
        if rails and record.rails:
            detail = f"by pod {pod.metadata.full_name}"  # without its text, for readers of others
            return NamedNics(PREFLIGHT, tuple(rails), ends[0].finished_at or "", detail, record.fabric)
    return None


# --- which rails they mean ------------------------------------------------------------------------------------

_Rail = tuple[str, str]  # names of fabric and rail


class HealthPolicy:
    """Holds what the policy says of reports, and the names of each rail's NIC on nodes of each shape."""

    def __init__(self, document: model.PolicyDocument | None = None, networks: intent.Networks | None = None) -> None:
        """Read a document. `networks` has the resources of networks. Without a document no report counts."""
        health = document.health if document is not None else model.Health()
        self.beliefs = {**BELIEFS, **health.reports}
        self.limits = Limits(health.hold_seconds, health.max_hold_seconds)
        fabrics = document.fabrics if document is not None else {}
        self.fabrics = {name: intent.fill_resources(name, fabric, networks or {}) for name, fabric in fabrics.items()}
        self.rails_by_resource: dict[str, list[_Rail]] = {}
        for name, fabric in self.fabrics.items():
            for resource, rails in intent.group_by_resource(fabric.rails).items():
                self.rails_by_resource.setdefault(resource, []).extend((name, rail) for rail in rails)
        self._shapes = document.node_shapes if document is not None else ()
        self._names: dict[str, Mapping[str, Sequence[_Rail]]] = {}  # by the name of a shape, "" without one

    @property
    def key(self) -> object:
        """Return everything that reports depend on."""
        return self.beliefs, self.limits, self.fabrics, self._shapes

    def find_names(self, labels: Mapping[str, str]) -> Mapping[str, Sequence[_Rail]]:
        """Return the rails that each name of a NIC means on a node with these labels."""
        shape = model.find_shape(self._shapes, labels)
        key = shape.name if shape is not None else ""
        if key not in self._names:
            self._names[key] = self._list_names(shape.devices if shape is not None else {})
        return self._names[key]

    def _list_names(self, devices: Mapping[str, str]) -> Mapping[str, Sequence[_Rail]]:
        rails_by_name: dict[str, list[_Rail]] = {}
        for fabric, compiled in self.fabrics.items():
            own: dict[str, str] = {}  # a device of the shape is no other rail's NIC, whatever `nics` has
            for rail in compiled.rails:
                own.setdefault(devices.get(rail.name) or rail.device or rail.name, rail.name)
            for rail in compiled.rails:
                address = (rail.claim and rail.claim.pci_address) or ""
                for name in (rail.name, *rail.nics, *_list_addresses(address)):
                    own.setdefault(name, rail.name)
            for name, rail_name in own.items():
                rails_by_name.setdefault(name, []).append((fabric, rail_name))
        return rails_by_name


def _list_addresses(address: str) -> tuple[str, ...]:
    """Return the names by which a PCI address is meant: its own, and that of its card, without the function."""
    return (address, address.rpartition(".")[0]) if "." in address else ()


# --- readers --------------------------------------------------------------------------------------------------


class Observation(NamedTuple):
    """Facts about a node."""

    node: object_info.NodeInfo
    named: Sequence[NamedNics]
    devices: inventory.Inventory
    seen: frozenset[str] = frozenset()  # resources that the node has had since this process started


def read_named(policy: HealthPolicy, observed: Observation) -> Iterator[RailReport]:
    """Yield the rails that a preflight names, and those whose NICs a node condition names."""
    believed = [report for report in observed.named if report.source in policy.beliefs]
    if not believed:
        return
    by_policy, by_slices = policy.find_names(observed.node.labels), _find_names_of_devices(policy, observed)
    for report in believed:
        for name in report.names:
            for fabric, rail in by_policy.get(name, by_slices.get(name, ())):
                if report.fabric in ("", fabric):
                    yield RailReport(fabric, rail, report.source, report.since, report.detail)


def find_unknown(policy: HealthPolicy, observed: Observation) -> Iterator[NamedNics]:
    """Yield the reports that count and whose names are those of no rail."""
    known = {*policy.find_names(observed.node.labels), *_find_names_of_devices(policy, observed)}
    return (row for row in observed.named if row.source in policy.beliefs and known.isdisjoint(row.names))


def _find_names_of_devices(policy: HealthPolicy, observed: Observation) -> Mapping[str, Sequence[_Rail]]:
    """Return the rails of the devices in slices of the node, by the names that attributes give their NICs."""
    rails_by_name: dict[str, list[_Rail]] = {}
    for device in observed.devices.list_offered(observed.node.name):
        rails = [
            rail
            for resource in observed.devices.names.find_names(device)
            for rail in policy.rails_by_resource.get(resource, ())
        ]
        attributes = device.device.attributes or {} if rails else {}
        values = [attributes[name].value for name in drivers.NIC_NAMES if name in attributes]
        for value in (device.id.device, *values):
            for name in (value, *_list_addresses(value)) if isinstance(value, str) else ():
                rails_by_name.setdefault(name, []).extend(rails)
    return rails_by_name


def read_counts(policy: HealthPolicy, observed: Observation) -> Iterator[RailReport]:
    """Yield the rails of resources without an allocatable device.

    Which rail a device is for is not known where rails share a resource, so that all work until none is left.
    A device counts as missing if it was there before: node types differ in their rails. It does not while its driver
    writes the slices of its pool one by one.
    """
    node = observed.node
    for resource, rails in policy.rails_by_resource.items():
        if resource not in observed.seen or node.allocatable.get(resource, 0):
            continue
        source = UNHEALTHY if node.capacity.get(resource, 0) else MISSING
        if source is MISSING and observed.devices.offered.is_incomplete(node.name):
            continue
        rows = observed.devices.list_unavailable(node.name).get(resource, ()) if source is UNHEALTHY else ()
        detail = next((f"device {row.device} has the taint {row.taint}" for row in rows if row.taint), "")
        source, detail = (TAINTED if detail else source), text.limit(detail, _MAX_DETAIL)
        for fabric, rail in rails:
            yield RailReport(fabric, rail, source, detail=detail)


def read_links(policy: HealthPolicy, observed: Observation) -> Iterator[RailReport]:
    """Yield the rails whose interface is down by its slice. That of InfiniBand is IPoIB, which RDMA does not need."""
    for device in observed.devices.list_offered(observed.node.name):
        attributes = device.device.attributes or {}
        state, kind = attributes.get(drivers.LINK_STATE), attributes.get(drivers.ENCAPSULATION)
        if state is None or state.value != "down" or (kind is not None and kind.value == "infiniband"):
            continue
        for resource in observed.devices.names.find_names(device):
            for fabric, rail in policy.rails_by_resource.get(resource, ()):
                if policy.fabrics[fabric].transport is not model.Transport.INFINIBAND:
                    yield RailReport(fabric, rail, LINK_DOWN, detail=f"device {device.id.device} is down")


READERS: Sequence[Callable[[HealthPolicy, Observation], Iterable[RailReport]]] = (read_named, read_counts, read_links)


def read(policy: HealthPolicy, observed: Observation) -> Mapping[tuple[str, str, str], RailReport]:
    """Return the first report about each rail of a node from each source, by fabric, rail and source."""
    reports: dict[tuple[str, str, str], RailReport] = {}
    for reader in READERS:
        for report in reader(policy, observed):
            reports.setdefault((report.fabric, report.rail, report.source), report)
    return reports


# --- reports that come and go --------------------------------------------------------------------------

# A report still counts for some time after it has ended, longer each time it returns. For example, with holds of 60 s,
# doubled up to 1,800 s: a link that is down for a moment every 50 s is out without a break. One that is down every five
# minutes is out for 60, 120, 240 and then all of the 300 s. After 1,800 s without a report the next one is the first
# again.


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
