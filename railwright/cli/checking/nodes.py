"""Checks of networks, device pools, node shapes, domains, and rails that come as claims.

Each runs once for each fabric and names it in its result, except the row about node shapes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from railwright.cli.checking import rows
from railwright.cli.checking.rows import Result, State, fail, ok, row, warn, warn_if_any
from railwright.cli.checking.snapshots import Snapshot, require_value
from railwright.fabric import hypernodes, intent, names, resources, text, topology
from railwright.fabric.claims import claim_templates, inventory, objects, selectors, slices
from railwright.fabric.placement.state import object_info
from railwright.fabric.policy import compiled, model, shortcomings
from railwright.fabric.reasons.codes import AdmissionCode as Code

GROUP = "nodes and rails"


def list_rdma_fabrics(snapshot: Snapshot) -> Mapping[str, model.Fabric]:
    """Return the fabrics with rails that are not TCP. A rail without a resource gets that of its network's annotation.

    Raises SkipError without a valid policy, or if such a network cannot be read.
    """
    fabrics = {name: item for name, item in snapshot.require_policy().fabrics.items() if item.rails}
    if any(rail.network and not rail.resource for fabric in fabrics.values() for rail in fabric.rails):
        snapshot.require_sources("networks")
    return {
        name: intent.fill_resources(name, fabric, snapshot.facts.networks or {})
        for name, fabric in fabrics.items()
        if fabric.transport is not model.Transport.TCP
    }


def _list_device_pools(fabric: model.Fabric) -> list[str]:
    return list(dict.fromkeys(rail.resource for rail in fabric.rails if rail.resource))


def _list_accelerated_nodes(snapshot: Snapshot) -> list[object_info.NodeInfo]:
    """Return the nodes with at least one accelerator, healthy or not."""
    return [node for node in snapshot.cluster.nodes.values() if _has_device(node, snapshot.accelerators)]


def _has_device(node: object_info.NodeInfo, names_of_resources: Iterable[str]) -> bool:
    """True if a node has at least one device of these resources, healthy or not."""
    return any(node.capacity.get(name) or node.allocatable.get(name) for name in names_of_resources)


def list_nodes(snapshot: Snapshot, fabric: model.Fabric) -> list[object_info.NodeInfo]:
    """Return the nodes with accelerators and, if the fabric has device pools, with at least one pool."""
    pools = _list_device_pools(fabric)
    return [node for node in _list_accelerated_nodes(snapshot) if not pools or _has_device(node, pools)]


@row(
    f"correct the network or the policy: kubectl get net-attach-def -A; {rows.EDIT_POLICY}",
    after="policy",
    each=list_rdma_fabrics,
    heals=True,
)
def check_rail_networks(snapshot: Snapshot, fabric: model.Fabric) -> Result:
    """Each rail's network exists and fits the policy.

    The NetworkAttachmentDefinition of every rail exists under its `namespace/name`. Pods are rejected while one is
    missing. Its `spec.config` is a JSON object, or empty (Multus then reads a file on the node); otherwise new pods
    hang in `ContainerCreating` with the Event `FailedCreatePodSandBox`. Where both the policy (`rails[].resource`) and
    the network (annotation `k8s.v1.cni.cncf.io/resourceName`) name a device pool, both are equal. Warns if no network
    gives addresses of `nccl.addressRange`: NCCL finds no GID then.
    """
    named = {rail.network_key for rail in fabric.rails if rail.network_key}
    require_value(named, "no rail has a network")
    absent = named - {network.metadata.key for network in snapshot.get_objects("networks")}
    # NETWORK_MISSING has room for one short name, because the length of admission's warnings is limited
    if missing := [f"{rail.name}: {rail.network}" for rail in fabric.rails if rail.network_key in absent]:
        return fail(
            f"there is no NetworkAttachmentDefinition for {text.join_first(missing, 4)}: pods are rejected",
            "create it (Multus installs its kind), or correct its name in the policy: kubectl get net-attach-def -A; "
            f"{rows.EDIT_POLICY}",
        )
    edit = "correct spec.config: kubectl -n NAMESPACE edit net-attach-def NAME; then delete the pods that hang"
    if invalid := _find_webhook_warning(snapshot, fabric, {Code.NETWORK_INVALID: State.FAIL}, edit):
        return invalid
    states = {Code.RAIL_RESOURCES_DIFFER: State.FAIL, Code.ADDRESSES_DIFFER: State.WARN}
    return _find_webhook_warning(snapshot, fabric, states) or ok(text.format_count(len(named), "network"))


def _find_webhook_warning(
    snapshot: Snapshot, fabric: model.Fabric, states: Mapping[Code, State], fix: str = ""
) -> Result | None:
    """Return the webhook's warning about a fabric that has the first of these codes, as a result; None without one."""
    found = shortcomings.find_fabric_shortcomings(fabric, snapshot.accelerators, snapshot.facts)
    texts = {reason.code: reason.text for reason in found}
    return next((Result(state, texts[code], fix) for code, state in states.items() if code in texts), None)


@row(
    f"check the device plugin's pods and configuration (kubectl describe node NODE), or {rows.EDIT_POLICY}",
    after="policy rail-networks",
    each=list_rdma_fabrics,
    heals=True,
)
def check_rail_offered(snapshot: Snapshot, fabric: model.Fabric) -> Result:
    """Nodes with accelerators offer each rail's device pool.

    At least one node offers each rail's device pool. Without any, pods stay Pending. Admission only warns about this,
    because an autoscaler may add such nodes.

    Warns about nodes that have accelerators and lack the device pool of a rail: pods go there last. Nodes that have
    rails of another fabric only are left out. Also warns if no node has accelerators or exactly `gpusPerNode` of them,
    and about rails without a device pool, unless `/dev/infiniband` is mounted, the containers are privileged, or the
    transport needs no pool.
    """
    require_value(not fabric.claims, "the rails come as claims, which the row claim-devices checks")
    if absent := _find_webhook_warning(snapshot, fabric, {Code.DEVICES_NOT_OFFERED: State.FAIL}):
        return absent
    if unbound := _find_webhook_warning(snapshot, fabric, {Code.RAIL_WITHOUT_RESOURCE: State.WARN}, rows.EDIT_POLICY):
        return unbound
    pools = _list_device_pools(fabric)
    if not (with_accelerators := _list_accelerated_nodes(snapshot)):
        return warn(
            f"no node has an accelerator ({', '.join(snapshot.accelerators)})",
            f"check the pods of the device plugins, and `accelerators` in the policy: {rows.EDIT_POLICY}",
        )
    others = [pool for other in list_rdma_fabrics(snapshot).values() for pool in _list_device_pools(other)]
    nodes = [node for node in with_accelerators if _has_device(node, pools) or not _has_device(node, others)]
    missing = [
        f"{node.name} lacks {text.join_first(lacking, 2)}"
        for node in nodes
        if (lacking := [name for name in pools if not node.capacity.get(name)])
    ]
    if missing:
        share = text.format_count(len(nodes), "node", part=len(missing))
        return warn(
            f"{share} with accelerators: {text.join_first(missing, 4)}",
            "install the device plugin on them, or exclude a node: kubectl taint node NODE rails=none:NoSchedule",
        )
    if differing := _find_webhook_warning(snapshot, fabric, {Code.GPUS_EXCEED_NODE: State.WARN}, rows.EDIT_POLICY):
        return differing
    require_value(pools, "no rail has a device pool")
    return ok(text.format_count(len(nodes), "node"))


@row(
    "check the NIC's link and the device plugin's log on that node: kubectl describe node NODE; to correct the "
    "annotation: kubectl annotate node NODE railwright.io/broken-rails=RAIL --overwrite",
    after="policy rail-offered",
    each=list_rdma_fabrics,
    heals=True,
)
def check_rail_dead(snapshot: Snapshot, fabric: model.Fabric) -> Result:
    """No node has lost all devices of a rail.

    Warns about nodes that have devices of a pool (`capacity`) but none allocatable. The link is down, or the device
    plugin reports them unhealthy. Devices of slices count, too: a taint `NoSchedule` or `NoExecute` takes them out.

    Also warns if the annotation `railwright.io/broken-rails` of a node names a rail that no fabric has. Such a name is
    ignored, so that pods still get the rail that was meant.
    """
    dead = [
        f"{node.name}: 0 of {capacity // resources.UNIT} {name} allocatable"
        for node in snapshot.cluster.nodes.values()
        for name in _list_device_pools(fabric)
        if (capacity := node.capacity.get(name)) and not node.allocatable.get(name)
    ]
    known = {rail.name for other in list_rdma_fabrics(snapshot).values() for rail in other.rails}
    misspelt = [
        f"{node.name}: {names.BROKEN_RAILS} names {text.join_first(others, 2)}, but no fabric has such a rail"
        for node in list_nodes(snapshot, fabric)
        if (others := [rail for rail in node.broken_rails if rail not in known])
    ]
    return warn_if_any([*dead, *misspelt])


@row(
    f"correct `nodeShapes[].match`: {rows.EDIT_POLICY}; to list labels: kubectl get nodes --show-labels",
    after="policy",
)
def check_node_shapes(snapshot: Snapshot) -> Result:
    """Node shapes match the nodes.

    Skipped if the policy has no `nodeShapes`.
    """
    known = require_value(snapshot.require_policy().node_shapes, "the policy has no nodeShapes")
    nodes = require_value(_list_accelerated_nodes(snapshot), "no node has accelerators")
    shapeless = [f"{node.name} matches no shape" for node in nodes if model.find_shape(known, node.labels) is None]
    unused = shortcomings.list_unused_shapes(known, [node.labels for node in nodes])
    problems = [*shapeless, *(f"no node matches the shape {name}" for name in unused)]
    return warn_if_any(problems, f"{text.format_count(len(nodes), 'node')}, {text.format_count(len(known), 'shape')}")


@row(
    "label the nodes (topograph does it), or correct `placement.domains`: kubectl label node NODE KEY=LEAF",
    after="policy",
    each=list_rdma_fabrics,
    heals=True,
)
def check_domains(snapshot: Snapshot, fabric: model.Fabric) -> Result:
    """Nodes are in the fabric's topology domains.

    Nodes with rails have the label of the closest topology domain. Nodes without it belong to no leaf switch, and gangs
    avoid them. With `preset: volcano`: HyperNodes exist, form a valid tree, and contain every node with rails.
    """
    nodes = list_nodes(snapshot, fabric)
    if fabric.placement.preset == "volcano" and not fabric.placement.domains:
        return _assess_hypernodes(snapshot, nodes)
    no_domains = "the fabric has no topology domains: all nodes count as equally close"
    keys = require_value(compiled.list_domain_keys(fabric.placement), no_domains)
    require_value(nodes, "no node has accelerators and rails of this fabric")
    expected = topology.expand_rails(keys[0], tuple(rail.name for rail in fabric.rails))
    unlabelled = [node.name for node in nodes if not {*expected} <= node.labels.keys()]
    if not unlabelled:
        return ok(f"{text.format_count(len(nodes), 'node', 'has')} {keys[0]}")
    share = text.format_count(len(nodes), "node", "has", part=len(unlabelled))
    assess = fail if len(unlabelled) == len(nodes) else warn
    return assess(f"{share} no label {keys[0]}: {text.join_first(unlabelled, 3)}")


def _assess_hypernodes(snapshot: Snapshot, nodes: Sequence[object_info.NodeInfo]) -> Result:
    create = "Volcano's topology discovery creates HyperNodes; to list them: kubectl get hypernodes"
    if not (listed := snapshot.get_objects("hypernodes")):
        return fail("there is no HyperNode", create)
    tree = hypernodes.Tree()
    tree.replace(listed)
    problems = tree.find_problems({name: node.labels for name, node in snapshot.cluster.nodes.items()})
    outside = [f"{node.name} is in no HyperNode" for node in nodes if not tree.find_hypernodes(node.name, node.labels)]
    return warn_if_any([*problems, *outside], text.format_count(len(listed), "HyperNode"), create)


# --- rails that come as claims -------------------------------------------------------------------------------

_CREATE_CLASS = (
    "install the driver with its class (Kubernetes has resource.k8s.io/v1 from 1.34), or correct claims.deviceClass: "
    f"kubectl get deviceclasses; {rows.EDIT_POLICY}"
)
# devices of a node, each with the names of the resources for which it counts
_Named = Sequence[tuple[slices.OfferedDevice, Sequence[str]]]


def _list_claimed_fabrics(snapshot: Snapshot) -> Mapping[str, claim_templates.ClaimedFabric]:
    claimed = {fabric.name: fabric for fabric in compiled.list_claimed_fabrics(snapshot.require_policy())}
    require_value(claimed, "no rails come as claims")
    snapshot.require_sources("device-classes", "device-slices")
    return claimed


@row(
    "correct `claim` of the rails, or `claims.railAttribute`, by the attributes of the devices (kubectl get "
    f"resourceslices -o yaml): {rows.EDIT_POLICY}",
    after="policy",
    each=_list_claimed_fabrics,
    heals=True,
)
def check_claim_devices(snapshot: Snapshot, fabric: claim_templates.ClaimedFabric) -> Result:
    """Each node with ResourceSlices has the devices of each rail, and they can be paired with GPUs.

    For fabrics with `claims`. The DeviceClasses that the policy names exist (Kubernetes serves resource.k8s.io/v1 from
    1.34), and each node with ResourceSlices has `devicesPerRail` devices of each rail. The detail names the node, the
    rail, and the values that the devices have instead. A NIC that is missing in the slice is down or not bound to its
    driver. On nodes without a rail, pods that need it are not placed.

    Of the expressions of a DeviceClass, railwright evaluates comparisons with constants, joined by `&&`. The row warns
    of others: their devices do not count in scores, and kube-scheduler allocates them all the same.

    dranet 1.4 and older publish `dra.net/rdmaDevice` only for NICs without a network interface. Identify RoCE rails
    there by PCI address: set `railAttribute: dra.net/pciAddress`, and `claim` of each rail to its address.

    With `claims.acceleratorClass`, a GPU and a NIC of each node have an equal value of the attribute `claims.pairBy`.
    On AKS ND GB300 and OKE GB200 the PCIe roots are never equal, because GPUs are on NVLink C2C and the virtual
    functions have PCI domains of their own: use `pairBy: numaNode` where both drivers publish it, otherwise `none`.
    """
    classes = {item.metadata.name: item for item in snapshot.get_objects("device-classes")}
    required = [name for name in (fabric.device_class, fabric.accelerator_class) if name]
    if missing := text.join_first((name for name in required if name not in classes), 5):
        detail = f"there is no DeviceClass {missing}; the cluster has {text.join_first(sorted(classes), 5) or 'none'}"
        return fail(detail, _CREATE_CLASS)
    has_driver = any(item.spec.driver == objects.DRANET for item in snapshot.get_objects("device-slices"))
    unread = [name for name in required if selectors.parse_terms(classes[name].expressions) is None]
    if unread and has_driver:
        return warn(
            f"the devices of DeviceClass {text.join_first(unread, 2)} do not count in scores, because an expression is "
            "more than comparisons with constants, joined by &&"
        )
    devices = snapshot.cluster.devices
    named = {node: devices.list_node_devices(node) for node in sorted(devices.offered.devices_by_node)}
    nodes = {node: listed for node, listed in named.items() if _list_devices(listed, fabric.device_class)}
    if not nodes:
        return fail(
            f"no ResourceSlice has a device of DeviceClass {fabric.device_class}: pods stay Pending",
            "see what the DRA driver has published: kubectl get resourceslices -o yaml. If nothing, look at the logs "
            f"of its pods; if other devices, correct the selectors of DeviceClass {fabric.device_class}",
        )
    problems = [
        f"{node}: {problem}" for node, listed in nodes.items() for problem in _find_missing_devices(fabric, listed)
    ]
    counts = f"{text.format_count(len(nodes), 'node')}, {text.format_count(len(fabric.rails), 'rail')}"
    if not fabric.pair_attribute:
        return warn_if_any(problems, counts)
    with_gpus = {node: listed for node, listed in nodes.items() if _list_devices(listed, fabric.accelerator_class)}
    if not with_gpus:
        return fail(f"no node with rails has a device of DeviceClass {fabric.accelerator_class}")
    if unpaired := [
        f"{node}: {pair}" for node, listed in with_gpus.items() if (pair := _describe_unpairable(fabric, listed))
    ]:
        fix = f"pair by an attribute that both drivers publish: {rows.EDIT_POLICY}"
        waiting = f"{text.join_first(unpaired, 4)}: pods that need a pair stay Pending there"
        return fail("; ".join([waiting, *problems[:4]]), fix)
    return warn_if_any(problems, f"{counts}, paired by {fabric.pair_attribute}")


def _list_devices(named: _Named, device_class: str) -> list[slices.OfferedDevice]:
    return [device for device, own in named if inventory.name_class(device_class) in own]


def _read_attribute_values(named: _Named, device_class: str, attribute: str) -> list[str]:
    """Return the values of an attribute that the devices of a class have."""
    values = {device.get_value(attribute) for device in _list_devices(named, device_class)} - {None}
    return sorted(map(str, values))


def _find_missing_devices(fabric: claim_templates.ClaimedFabric, named: _Named) -> Iterator[str]:
    """Yield a text for each rail of which a node has too few devices, with the attribute's values of its NICs."""
    for rail in fabric.rails.values():
        count = sum(rail.resource in own for _, own in named)
        if count < fabric.devices_per_rail:
            devices = text.format_count(fabric.devices_per_rail, "device", part=count)
            wanted = text.join_first(map(str, rail.values), 5)
            actual = text.join_first(_read_attribute_values(named, fabric.device_class, rail.attribute), 3)
            there = actual or "no such attribute"
            yield f"{rail.name} has {devices} with {rail.attribute} {wanted}; the node has {there}"


def _describe_unpairable(fabric: claim_templates.ClaimedFabric, named: _Named) -> str:
    """Return the values of `pairBy` of a node's GPUs and NICs, if no GPU and NIC have an equal one; otherwise ""."""
    gpus = _read_attribute_values(named, fabric.accelerator_class, fabric.pair_attribute)
    nics = _read_attribute_values(named, fabric.device_class, fabric.pair_attribute)
    if not {*gpus}.isdisjoint(nics):
        return ""
    gpu, nic = (text.join_first(values, 1) or "none" for values in (gpus, nics))
    return f"{fabric.pair_attribute} is never equal: GPUs have {gpu}, NICs {nic}"
