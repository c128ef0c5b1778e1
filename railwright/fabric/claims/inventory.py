"""Counts the devices of ResourceSlices and ResourceClaims by node and resource name.

Placement can therefore treat them like devices of a device plugin. A resource that kubelet reports comes from a device
plugin, and its amounts are those of kubelet. For a resource that only slices offer, the devices in use are those that
claims hold. Requests of bound pods are ignored there: anybody can write amounts into a pod that names its node.

The requests of a pod include those of the templates and claims in its spec, before and after allocation. Pods with
equal specs therefore have equal requests, and a waiting gang is planned as a whole. If a template is deleted while its
pods run, the claims made from it count instead. A claim belongs only to a pod in its own namespace, because tenants can
write the owners of claims.

A device of a DeviceClass of the policy counts under the resource name of the class (`name_class`). A NIC also counts
under each rail whose attribute value it has, and a GPU under the policy's first accelerator. A request is for a rail if
it has the rail's expression. Devices of a class do not count if `selectors` cannot read its expressions.

Updated by events, which may arrive in any order and repeatedly.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, NamedTuple, TypeVar

import msgspec

from railwright.fabric import bounded_cache, resources, views
from railwright.fabric.claims import claim_templates, objects, selectors, slices


class PodKey(msgspec.Struct, frozen=True, gc=False):
    """Key to the claims of a pod: its UID, and namespace/name of the claims and templates in its spec."""

    uid: str
    namespace: str = ""
    claims: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()


def build_pod_key(pod: views.Pod) -> PodKey:
    """Return the key that finds a pod's claims in the inventory."""
    namespace, claims, templates = pod.metadata.namespace, [], []
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name:
            claims.append(f"{namespace}/{entry.resource_claim_name}")
        if entry.resource_claim_template_name:
            templates.append(f"{namespace}/{entry.resource_claim_template_name}")
    return PodKey(pod.metadata.identity, namespace, tuple(claims), tuple(templates))


class ResourceNames:
    """Resource names of devices and of requests, from the DeviceClasses and the fabrics of the policy.

    `version` is incremented with each change after which a device or request may have other names.
    """

    def __init__(self) -> None:
        self._classes: dict[str, selectors.Selection] = {}  # by DeviceClass; only those with simple expressions
        self._fabrics: tuple[claim_templates.ClaimedFabric, ...] = ()
        self._rails: dict[str, list[claim_templates.ClaimedRail]] = {}  # by DeviceClass; none of the GPUs
        self._resources: dict[tuple[str, str], list[str]] = {}  # DeviceClass, expression of the rail ("": GPUs)
        self.version = 0

    def find_resource_names(self, device: slices.OfferedDevice) -> tuple[str, ...]:
        """Return the resource names under which a device of a slice counts."""
        names: dict[str, None] = {}
        for name, rails in self._rails.items():
            if name in self._classes and selectors.selects_device(self._classes[name], device.device, device.id.driver):
                own = [rail.resource for rail in rails if _has_rail_value(device, rail)]
                names.update(dict.fromkeys([name_class(name), *self._resources.get((name, ""), ()), *own]))
        return tuple(names)

    def find_requested_names(self, request: objects.ExactDeviceRequest) -> tuple[str, ...]:
        """Return the resource names under which the devices of a claim's request count."""
        name = request.device_class_name
        if name not in self._classes or name not in self._rails:
            return ()
        own = [known for key in ("", *request.expressions) for known in self._resources.get((name, key), ())]
        return tuple(dict.fromkeys([name_class(name), *own]))

    def change_class(self, before: objects.DeviceClass | None, after: objects.DeviceClass | None) -> None:
        """Record an added, updated or deleted DeviceClass: `before` is None if added, `after` if deleted."""
        if before is not None:
            self._classes.pop(before.metadata.name, None)
        if after is not None and (selection := selectors.parse_terms(after.expressions)) is not None:
            self._classes[after.metadata.name] = selection
        self.version += 1

    def replace_fabrics(self, fabrics: Sequence[claim_templates.ClaimedFabric]) -> bool:
        """Replace the fabrics of the policy. Return False if they are equal to the former."""
        if tuple(fabrics) == self._fabrics:
            return False
        self._fabrics, self._rails, self._resources = tuple(fabrics), {}, {}
        for fabric in fabrics:
            self._rails.setdefault(fabric.device_class, []).extend(fabric.rails.values())
            for rail in fabric.rails.values():
                self._resources.setdefault((fabric.device_class, rail.expression), []).append(rail.resource)
            if fabric.accelerator_class:
                self._rails.setdefault(fabric.accelerator_class, [])
                self._resources.setdefault((fabric.accelerator_class, ""), []).append(fabric.accelerator_resource)
        self.version += 1
        return True


def name_class(device_class: str) -> str:
    """Return the resource name under which all devices of a DeviceClass count (KEP-5004)."""
    return objects.IMPLICIT_RESOURCE_PREFIX + device_class


def _has_rail_value(device: slices.OfferedDevice, rail: claim_templates.ClaimedRail) -> bool:
    value = device.get_value(rail.attribute)
    return any(type(value) is type(own) and value == own for own in rail.values)  # Python has True == 1


class NodeDevices(msgspec.Struct, frozen=True):
    """Devices that slices offer on a node, in milli-units by resource name.

    `allocatable` excludes devices with a taint NoSchedule or NoExecute. `allocated` are the allocatable devices that
    claims hold.
    """

    capacity: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocatable: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocated: resources.FrozenAmounts = resources.NO_AMOUNTS


NO_DEVICES = NodeDevices()


class Changes(NamedTuple):
    """Nodes, and claims of pods, whose counts an event may have changed."""

    nodes: AbstractSet[str] = frozenset()  # whose devices changed, or were taken or returned
    uids: AbstractSet[str] = frozenset()  # of pods that use a changed claim, or did
    keys: AbstractSet[str] = frozenset()  # namespace/name of changed claims and templates


_Kinds = objects.ResourceSlice | objects.DeviceClass | objects.ResourceClaim | objects.ResourceClaimTemplate
T = TypeVar("T", bound=_Kinds)


class Sink(Generic[T]):
    """Receives the objects of one kind, such as ResourceClaims, and calls `change(before, after)` for each change.

    `before` is None for a new object, `after` for a deleted one.
    """

    def __init__(self, change: Callable[[T | None, T | None], Changes]) -> None:
        self.known: dict[str, T] = {}  # by namespace/name
        self._change = change

    def replace(self, listed: Sequence[T]) -> Changes:
        """Replace all objects of the kind. Return the nodes and claims that are affected."""
        gone = self.known.keys() - {obj.metadata.full_name for obj in listed}
        changes = [*map(self.remove, [self.known[key] for key in gone]), *map(self.upsert, listed)]
        return Changes(*(frozenset().union(*parts) for parts in zip(*changes, strict=True))) if changes else Changes()

    def upsert(self, obj: T) -> Changes:
        """Add or update an object. Return the nodes and claims that are affected."""
        key = obj.metadata.full_name
        before = self.known.get(key)
        if before == obj:
            return Changes()
        self.known[key] = obj
        return self._change(before, obj)

    def remove(self, obj: T) -> Changes:
        """Remove an object. Return the nodes and claims that are affected."""
        before = self.known.pop(obj.metadata.full_name, None)
        return self._change(before, None) if before is not None else Changes()


_MAX_SPECS = 1024  # distinct specs of claims, each stored once; claims of one template have the same


class Inventory:
    """ResourceSlices, claims, claim templates and DeviceClasses of the cluster, with counts by node and by pod.

    Callers read from `offered` and `names`, and write to the four sinks.
    """

    def __init__(self) -> None:
        self.offered = slices.SliceIndex()
        self.names = ResourceNames()
        self._specs: bounded_cache.BoundedCache[objects.ResourceClaimSpec, objects.ResourceClaimSpec]
        self._specs = bounded_cache.BoundedCache(_MAX_SPECS)
        self._claims_by_pod: dict[tuple[str, str], set[str]] = {}  # namespace and UID of the pod -> claims
        self._claim_by_device: dict[slices.DeviceId, str] = {}  # that holds the device exclusively
        self.slice_sink = Sink[objects.ResourceSlice](self._change_slice)
        self.class_sink = Sink[objects.DeviceClass](self._change_class)
        self.claim_sink = Sink[objects.ResourceClaim](self._change_claim)
        self.template_sink = Sink[objects.ResourceClaimTemplate](_change_template)

    @property
    def has_devices(self) -> bool:
        """True if any slice offers a device; False in a cluster without Dynamic Resource Allocation."""
        return bool(self.offered.devices)

    # --- nodes ----------------------------------------------------------------------------------------

    def count_devices(self, node: str) -> NodeDevices:
        """Return the numbers of devices that slices offer on a node; NO_DEVICES if there are none."""
        named = self.list_node_devices(node)
        if not named:
            return NO_DEVICES
        usable = [(device, names) for device, names in named if not device.find_taint()]
        return NodeDevices(
            capacity=_count_names(names for _, names in named),
            allocatable=_count_names(names for _, names in usable),
            allocated=_count_names(names for device, names in usable if device.id in self._claim_by_device),
        )

    def list_node_devices(self, node: str) -> Sequence[tuple[slices.OfferedDevice, tuple[str, ...]]]:
        """Return the devices that slices offer on a node, each with its resource names."""
        return [(device, self.names.find_resource_names(device)) for device in self.offered.list_node_devices(node)]

    def find_holding_claim(self, device: slices.DeviceId) -> objects.ResourceClaim | None:
        """Return the claim that holds a device exclusively; None if there is none."""
        key = self._claim_by_device.get(device)
        return self.claim_sink.known[key] if key is not None else None

    def list_claims_on_node(self, node: str) -> Sequence[objects.ResourceClaim]:
        """Return the claims that hold devices of a node exclusively, sorted by namespace/name."""
        on_node = self.offered.devices_by_node.get(node, ())
        keys = {self._claim_by_device[device] for device in on_node if device in self._claim_by_device}
        return [self.claim_sink.known[key] for key in sorted(keys)]

    def share_spec(self, claim: objects.ResourceClaim) -> objects.ResourceClaim:
        """Return a copy of a claim whose spec is the same object as in claims with an equal spec, to save memory."""
        return msgspec.structs.replace(claim, spec=self._specs.get_or_compute(claim.spec, lambda: claim.spec))

    # --- pods -----------------------------------------------------------------------------------------

    def list_allocated_nodes(self, pod: PodKey) -> set[str]:
        """Return the names of the nodes where a pod's claims hold devices."""
        return {device.node for device, _ in self.list_held_devices(pod)}

    def list_held_devices(self, pod: PodKey) -> Sequence[tuple[slices.OfferedDevice, tuple[str, ...]]]:
        """Return the devices that a pod's claims hold, in the order of their names, each with its resource names.

        The claims of a pod are those generated or reserved for it, and those that its spec names.
        """
        own = self._claims_by_pod.get((pod.namespace, pod.uid), ())
        if not own and not pod.claims:
            return ()
        known = self.claim_sink.known
        return self._list_allocated_devices(known[key] for key in {*own, *pod.claims} if key in known)

    def count_held_devices(self, claim: objects.ResourceClaim, node: str) -> resources.Amounts:
        """Return how many devices of a node a claim holds, in milli-units by resource name."""
        return _count_names(names for device, names in self._list_allocated_devices([claim]) if device.node == node)

    def count_exclusive_devices(self, pod: PodKey, names: AbstractSet[str], node: str = "") -> resources.Amounts:
        """Return how many devices a pod's claims hold exclusively, in milli-units, of the resources in `names`.

        Counts the devices of one node, or of all nodes if `node` is "".
        """
        return _count_names(
            names & set(own)
            for device, own in self.list_held_devices(pod)
            if node in {"", device.node} and device.id in self._claim_by_device
        )

    def add_requests(self, pod: PodKey, container_requests: resources.FrozenAmounts) -> resources.FrozenAmounts:
        """Return a pod's requests: those of its containers plus those of its claims, in milli-units."""
        claimed = self.compute_requests(pod)
        return (
            resources.freeze_amounts(Counter(container_requests) + Counter(claimed)) if claimed else container_requests
        )

    def compute_requests(self, pod: PodKey) -> resources.FrozenAmounts:
        """Return the devices that a pod's claims request, in milli-units by resource name."""
        if not pod.claims and not pod.templates:  # most pods
            return resources.NO_AMOUNTS
        claims, templates = self.claim_sink.known, self.template_sink.known
        requested = [templates[key].devices for key in pod.templates if key in templates]
        if len(requested) < len(pod.templates):  # it was deleted after the claims were made, or does not exist yet
            requested = self._list_generated_claims(pod) or requested
        requested += [claims[key].spec.devices for key in pod.claims if key in claims]
        return resources.add_up_amounts(
            [self._count_request(request) for claim in requested for request in claim.requests]
        )

    def _list_generated_claims(self, pod: PodKey) -> list[objects.DeviceClaim]:
        """Return spec.devices of the claims that Kubernetes generated for a pod."""
        known = self.claim_sink.known
        claims = [known[key] for key in sorted(self._claims_by_pod.get((pod.namespace, pod.uid), ()))]
        return [claim.spec.devices for claim in claims if claim.generated_for == pod.uid]

    def _count_request(self, request: objects.DeviceRequest) -> resources.Amounts:
        """Return the requested devices, in milli-units by resource name; none for a request with alternatives."""
        exact = request.exactly
        if exact is None or not exact.min_devices:
            return {}
        return dict.fromkeys(self.names.find_requested_names(exact), exact.min_devices * resources.UNIT)

    def _list_allocated_devices(
        self, claims: Iterable[objects.ResourceClaim]
    ) -> Sequence[tuple[slices.OfferedDevice, tuple[str, ...]]]:
        known = self.offered.devices
        held = {slices.identify_device(result) for claim in claims for result in claim.results}
        devices = [known[device] for device in sorted(held, key=slices.get_sort_key) if device in known]
        return [(device, self.names.find_resource_names(device)) for device in devices]

    # --- changes --------------------------------------------------------------------------------------

    def replace_fabrics(self, fabrics: Sequence[claim_templates.ClaimedFabric]) -> Changes:
        """Replace the fabrics of the policy, whose rails give devices their resource names."""
        has_changed = self.names.replace_fabrics(fabrics)
        return Changes(nodes=frozenset(self.offered.devices_by_node) if has_changed else frozenset())

    def _change_class(self, before: objects.DeviceClass | None, after: objects.DeviceClass | None) -> Changes:
        self.names.change_class(before, after)
        return Changes(nodes=frozenset(self.offered.devices_by_node))

    def _change_slice(self, before: objects.ResourceSlice | None, after: objects.ResourceSlice | None) -> Changes:
        return Changes(nodes=self.offered.replace_slice(before, after))

    def _change_claim(self, before: objects.ResourceClaim | None, after: objects.ResourceClaim | None) -> Changes:
        if before is not None:
            key = before.metadata.full_name
            for pod in [(before.metadata.namespace, uid) for uid in before.consumers]:
                self._claims_by_pod[pod].remove(key)
                if not self._claims_by_pod[pod]:
                    del self._claims_by_pod[pod]
            for device in map(slices.identify_device, before.results):
                if self._claim_by_device.get(device) == key:
                    del self._claim_by_device[device]
        if after is not None:
            key = after.metadata.full_name
            for uid in after.consumers:
                self._claims_by_pod.setdefault((after.metadata.namespace, uid), set()).add(key)
            for result in after.results:
                if not result.admin_access and result.share_id is None:
                    self._claim_by_device[slices.identify_device(result)] = key
        changed = [claim for claim in (before, after) if claim is not None]
        return Changes(
            nodes={device.node for device, _ in self._list_allocated_devices(changed)},
            uids=frozenset().union(*(claim.consumers for claim in changed)),
            keys=frozenset(claim.metadata.full_name for claim in changed),
        )


def _change_template(
    before: objects.ResourceClaimTemplate | None, after: objects.ResourceClaimTemplate | None
) -> Changes:
    return Changes(keys={template.metadata.full_name for template in (before, after) if template is not None})


def _count_names(devices: Iterable[Iterable[str]]) -> resources.FrozenAmounts:
    """Return how many devices have each resource name, in milli-units, from the names of each device."""
    amounts: Counter[str] = Counter()
    for names in devices:
        amounts.update(dict.fromkeys(names, resources.UNIT))
    return resources.FrozenAmounts(amounts)
