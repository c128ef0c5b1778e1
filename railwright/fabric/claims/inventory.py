"""The devices that slices offer on each node, and those of them that claims hold, as amounts of resource names.

A device counts under each name by which a pod can request it as an extended resource: that of its DeviceClass
(`spec.extendedResourceName`), and `deviceclass.resource.kubernetes.io/CLASS`. Placement therefore treats it as a device
of a device plugin. Which devices are in use is read from claims only: while a pod holds a device, its driver may
withdraw attributes, but keeps the device in its slice.

Updated by events, which may arrive in any order and repeatedly. Devices that several nodes share are not counted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.claims import objects, selectors

_Pool = tuple[str, str]  # driver, name
_UNSCHEDULABLE = frozenset({"NoSchedule", "NoExecute"})


class DeviceId(msgspec.Struct, frozen=True, cache_hash=True):
    """The name of a device in allocation results."""

    driver: str
    pool: str
    device: str


class PodKey(NamedTuple):
    """Identifies the claims of a pod: its UID, and namespace/name of the claims that its spec names."""

    uid: str
    claims: tuple[str, ...] = ()


class NodeDevices(msgspec.Struct, frozen=True):
    """Devices of a node, in milli-units by resource name.

    `allocatable` excludes devices with a taint that keeps pods away. `allocated` is the part of it that claims hold.
    """

    capacity: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocatable: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocated: resources.FrozenAmounts = resources.NO_AMOUNTS


NO_DEVICES = NodeDevices()


class _Offered(msgspec.Struct, frozen=True):
    """A device in the current generation of its pool."""

    id: DeviceId
    node: str
    description: Mapping[str, object]
    taints: tuple[views.Taint, ...]


class Inventory:
    """Slices, claims, device classes and taint rules, indexed by node and by pod.

    Each change returns the names of the nodes whose devices may have changed.
    """

    def __init__(self) -> None:
        self._slices: dict[str, objects.ResourceSlice] = {}
        self._slices_by_pool: dict[_Pool, dict[str, objects.ResourceSlice]] = {}
        self._claims: dict[str, objects.ResourceClaim] = {}  # by namespace/name
        self._classes: dict[str, objects.DeviceClass] = {}
        self._taint_rules: dict[str, objects.DeviceTaintRule] = {}
        self._offered: dict[DeviceId, _Offered] = {}
        self._ids_by_node: dict[str, set[DeviceId]] = {}
        self._holders: dict[DeviceId, str] = {}  # device -> claim
        self._claims_of_pod: dict[str, set[str]] = {}  # UID of the pod -> claims
        self._devices_by_pool: dict[_Pool, Mapping[DeviceId, _Offered]] = {}
        self._names_of_class: dict[str, tuple[str, ...]] = {}
        self._names: dict[DeviceId, tuple[str, ...]] = {}  # computed on demand
        self._counts: dict[str, NodeDevices] = {}  # computed on demand

    # --- reading --------------------------------------------------------------------------------------

    @property
    def has_devices(self) -> bool:
        """True if slices offer a device. Otherwise the cluster has no Dynamic Resource Allocation."""
        return bool(self._offered)

    def count_devices(self, node: str) -> NodeDevices:
        """Return the devices of a node; NO_DEVICES if it has none."""
        if node not in self._ids_by_node:
            return NO_DEVICES
        counts = self._counts.get(node)
        if counts is None:
            counts = self._counts[node] = self._count(self._ids_by_node[node])
        return counts

    def list_claims(self, pod: PodKey) -> Sequence[objects.ResourceClaim]:
        """Return the known claims of a pod: those generated or reserved for it, and those that its spec names."""
        if not self._claims:
            return ()
        keys = {*self._claims_of_pod.get(pod.uid, ()), *pod.claims}
        return [self._claims[key] for key in sorted(keys) if key in self._claims]

    def list_consumers(self, claim: objects.ResourceClaim) -> frozenset[str]:
        """Return the UIDs of the pods that use a claim as it is known now."""
        known = self._claims.get(_get_key(claim))
        return known.consumers if known is not None else frozenset()

    def has_allocation(self, pod: PodKey) -> bool:
        """True if a claim of the pod is allocated: then its devices are among the allocated ones of its node."""
        return any(claim.results for claim in self.list_claims(pod))

    def list_allocated_nodes(self, pod: PodKey) -> set[str]:
        """Return the nodes with devices that the claims of a pod hold."""
        return {node for claim in self.list_claims(pod) for node in self._list_nodes(claim)}

    def compute_requests(self, pod: PodKey) -> resources.Amounts:
        """Return the devices that a pod's claims request, in milli-units by resource name.

        Claims that stand for extended resources are left out, because the pod's containers request these.
        """
        amounts: Counter[str] = Counter()
        for claim in self.list_claims(pod):
            if objects.EXTENDED_RESOURCE_CLAIM not in claim.metadata.annotations:
                amounts.update(self._compute_amounts(claim))
        return amounts

    # --- events ---------------------------------------------------------------------------------------

    def upsert_slice(self, offered: objects.ResourceSlice) -> set[str]:
        """Add or update a slice."""
        name = offered.metadata.name
        previous = self._slices.get(name)
        if previous == offered:
            return set()
        self._slices[name] = offered
        if previous is not None:
            self._slices_by_pool[_get_pool(previous)].pop(name)
        self._slices_by_pool.setdefault(_get_pool(offered), {})[name] = offered
        pools = {_get_pool(offered)} if previous is None else {_get_pool(previous), _get_pool(offered)}
        return set().union(*(self._index_pool(pool) for pool in pools))

    def remove_slice(self, offered: objects.ResourceSlice) -> set[str]:
        """Remove a slice."""
        previous = self._slices.pop(offered.metadata.name, None)
        if previous is None:
            return set()
        self._slices_by_pool[_get_pool(previous)].pop(previous.metadata.name)
        return self._index_pool(_get_pool(previous))

    def replace_slices(self, slices: Sequence[objects.ResourceSlice]) -> set[str]:
        """Replace all slices."""
        listed = {offered.metadata.name for offered in slices}
        nodes: set[str] = set()
        for offered in [offered for name, offered in self._slices.items() if name not in listed]:
            nodes |= self.remove_slice(offered)
        for offered in slices:
            nodes |= self.upsert_slice(offered)
        return nodes

    def upsert_class(self, device_class: objects.DeviceClass) -> set[str]:
        """Add or update a device class."""
        if self._classes.get(device_class.metadata.name) == device_class:
            return set()
        self._classes[device_class.metadata.name] = device_class
        return self._forget_names()

    def remove_class(self, device_class: objects.DeviceClass) -> set[str]:
        """Remove a device class."""
        self._classes.pop(device_class.metadata.name, None)
        return self._forget_names()

    def replace_classes(self, classes: Sequence[objects.DeviceClass]) -> set[str]:
        """Replace all device classes."""
        self._classes = {device_class.metadata.name: device_class for device_class in classes}
        return self._forget_names()

    def upsert_taint_rule(self, rule: objects.DeviceTaintRule) -> set[str]:
        """Add or update a taint rule."""
        self._taint_rules[rule.metadata.name] = rule
        return self._forget_counts(self._ids_by_node)

    def remove_taint_rule(self, rule: objects.DeviceTaintRule) -> set[str]:
        """Remove a taint rule."""
        self._taint_rules.pop(rule.metadata.name, None)
        return self._forget_counts(self._ids_by_node)

    def replace_taint_rules(self, rules: Sequence[objects.DeviceTaintRule]) -> set[str]:
        """Replace all taint rules."""
        self._taint_rules = {rule.metadata.name: rule for rule in rules}
        return self._forget_counts(self._ids_by_node)

    def upsert_claim(self, claim: objects.ResourceClaim) -> set[str]:
        """Add or update a claim."""
        key = _get_key(claim)
        previous = self._claims.get(key)
        if previous == claim:
            return set()
        nodes = self._release(key)
        self._claims[key] = claim
        for uid in claim.consumers:
            self._claims_of_pod.setdefault(uid, set()).add(key)
        for result in claim.results:
            if not result.admin_access:
                self._holders[_identify(result)] = key
        return nodes | self._forget_counts(self._list_nodes(claim))

    def remove_claim(self, claim: objects.ResourceClaim) -> set[str]:
        """Remove a claim."""
        return self._release(_get_key(claim))

    def replace_claims(self, claims: Sequence[objects.ResourceClaim]) -> set[str]:
        """Replace all claims."""
        nodes: set[str] = set()
        for key in self._claims.keys() - {_get_key(claim) for claim in claims}:
            nodes |= self._release(key)
        for claim in claims:
            nodes |= self.upsert_claim(claim)
        return nodes

    def _release(self, key: str) -> set[str]:
        """Forget a claim. Returns the nodes of its devices."""
        claim = self._claims.pop(key, None)
        if claim is None:
            return set()
        for uid in claim.consumers:
            claims = self._claims_of_pod.get(uid, set())
            claims.discard(key)
            if not claims:
                self._claims_of_pod.pop(uid, None)
        for result in claim.results:
            device = _identify(result)
            if self._holders.get(device) == key:
                del self._holders[device]
        return self._forget_counts(self._list_nodes(claim))

    def _list_nodes(self, claim: objects.ResourceClaim) -> set[str]:
        ids = [_identify(result) for result in claim.results]
        return {self._offered[device].node for device in ids if device in self._offered}

    def _index_pool(self, pool: _Pool) -> set[str]:
        """Index the devices of a pool: those of its newest generation, if all its slices are known."""
        before = self._devices_by_pool.pop(pool, {})
        slices = self._slices_by_pool[pool]
        if not slices:
            del self._slices_by_pool[pool]
        devices = {device.id: device for offered in _list_current(slices.values()) for device in _list_devices(offered)}
        if devices:
            self._devices_by_pool[pool] = devices
        changed: set[str] = set()
        for device in before.keys() | devices.keys():
            old, new = before.get(device), devices.get(device)
            if old != new:
                changed |= self._replace_device(device, old, new)
        return self._forget_counts(changed)

    def _replace_device(self, device: DeviceId, old: _Offered | None, new: _Offered | None) -> set[str]:
        """Index a device that was added, changed or removed. Returns its nodes."""
        self._names.pop(device, None)
        self._offered.pop(device, None)
        if old is not None:
            self._ids_by_node[old.node].discard(device)
            if not self._ids_by_node[old.node]:
                del self._ids_by_node[old.node]
        if new is not None:
            self._offered[device] = new
            self._ids_by_node.setdefault(new.node, set()).add(device)
        return {offered.node for offered in (old, new) if offered is not None}

    def _forget_names(self) -> set[str]:
        """Forget under which names devices count, and derive the names of each class again."""
        self._names.clear()
        self._names_of_class = _name_classes(self._classes.values())
        return self._forget_counts(self._ids_by_node)

    def _forget_counts(self, nodes: Iterable[str]) -> set[str]:
        changed = set(nodes)
        for node in changed:
            self._counts.pop(node, None)
        return changed

    # --- counting -------------------------------------------------------------------------------------

    def _count(self, devices: Collection[DeviceId]) -> NodeDevices:
        capacity: Counter[str] = Counter()
        allocatable: Counter[str] = Counter()
        allocated: Counter[str] = Counter()
        for device in devices:
            names = dict.fromkeys(self._find_names(device), resources.UNIT)
            capacity.update(names)
            if not self._is_tainted(self._offered[device]):
                allocatable.update(names)
                if device in self._holders:
                    allocated.update(names)
        return NodeDevices(*(resources.FrozenAmounts(dict(each)) for each in (capacity, allocatable, allocated)))

    def _find_names(self, device: DeviceId) -> tuple[str, ...]:
        """Return the resource names under which a device counts."""
        names = self._names.get(device)
        if names is None:
            description = self._offered[device].description
            names = self._names[device] = tuple(
                name
                for device_class in self._classes.values()
                if _matches(device_class.expressions, description)
                for name in self._names_of_class[device_class.metadata.name]
            )
        return names

    def _is_tainted(self, device: _Offered) -> bool:
        by_rule = (rule.spec.taint for rule in self._taint_rules.values() if _selects(rule, device.id))
        return any(taint.effect in _UNSCHEDULABLE for taint in (*device.taints, *by_rule))

    def _compute_amounts(self, claim: objects.ResourceClaim) -> resources.Amounts:
        """Return the devices that a claim requests.

        They are the same before and after allocation, so that equal pods stay equal.
        """
        amounts: Counter[str] = Counter()
        for request in claim.requests:
            kind = request.preferred
            device_class = self._classes.get(kind.device_class_name) if kind else None
            if kind is not None and device_class is not None and not kind.admin_access:
                amounts.update(dict.fromkeys(self._names_of_class[kind.device_class_name], kind.count * resources.UNIT))
        return amounts


def _identify(result: objects.DeviceResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)


def _get_key(claim: objects.ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _get_pool(offered: objects.ResourceSlice) -> _Pool:
    return offered.spec.driver, offered.spec.pool.name


def _name_classes(classes: Iterable[objects.DeviceClass]) -> dict[str, tuple[str, ...]]:
    """Return the extended resources by which devices of each class can be requested.

    Of classes with one extended resource, the newest has it, and of equally old ones the first by name (KEP-5004).
    """
    by_age = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    by_age.sort(key=lambda each: each.metadata.creation_timestamp or "")
    owners = {each.spec.extended_resource_name: each.metadata.name for each in by_age}  # the last one stays
    return {
        each.metadata.name: (
            *(
                [explicit]
                if (explicit := each.spec.extended_resource_name) and owners[explicit] == each.metadata.name
                else []
            ),
            objects.IMPLICIT_RESOURCE_PREFIX + each.metadata.name,
        )
        for each in by_age
    }


def _list_current(slices: Collection[objects.ResourceSlice]) -> list[objects.ResourceSlice]:
    """Return the slices of a pool in its newest generation; none if one is missing."""
    newest = max((offered.spec.pool.generation for offered in slices), default=0)
    current = [offered for offered in slices if offered.spec.pool.generation == newest]
    return current if current and len(current) >= current[0].spec.pool.resource_slice_count else []


def _list_devices(offered: objects.ResourceSlice) -> list[_Offered]:
    """Return the devices of a slice that belong to one node."""
    spec = offered.spec
    return [
        _Offered(
            id=DeviceId(spec.driver, spec.pool.name, device.name),
            node=spec.node_name or device.node_name,
            description=objects.describe_device(device, spec.driver),
            taints=tuple(device.taints or ()),
        )
        for device in spec.devices
        if spec.node_name or device.node_name
    ]


def _selects(rule: objects.DeviceTaintRule, device: DeviceId) -> bool:
    """Return whether a taint rule selects a device. A rule without a selector selects none (KEP-5055)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(name is None or name == actual for name, actual in names)


def _matches(expressions: Sequence[str], description: Mapping[str, object]) -> bool:
    """Return whether a device matches all expressions. It does not match one that fails, as in kube-scheduler."""
    try:
        return all(selectors.matches(expression, description) for expression in expressions)
    except selectors.SelectorError:
        return False


def identify_claims(pod: views.Pod) -> PodKey:
    """Return the key of a pod's claims."""
    namespace = pod.metadata.namespace
    claims = [entry.resource_claim_name for entry in pod.spec.resource_claims or () if entry.resource_claim_name]
    return PodKey(pod.metadata.identity, tuple(f"{namespace}/{name}" for name in claims))
