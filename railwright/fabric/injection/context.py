"""Builds the context of one injection: fabric, role, containers, rails and user options of a pod that opted in.

The context does not change while the mutators change the pod. The rules for rails are in docs/interface.md 1.3 and 3.2.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from railwright.fabric import device_names, intent, names, text, views
from railwright.fabric.injection import accelerators, facts
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks
from railwright.fabric.workloads import roles as workload_roles

SKIPPED = reason.Reason(AdmissionCode.SKIPPED_BY_ANNOTATION, f"by annotation {names.SKIP}")


class RailSelection(msgspec.Struct, frozen=True):
    """The rails of a pod in the fabric's order, with the networks and resources that the policy gives them."""

    rails: tuple[compiled.ResolvedRail, ...] = ()
    policy_rails: tuple[policies.Rail, ...] = ()
    names: tuple[str, ...] = ()
    resources: frozenset[str] = frozenset()  # of the rails that have one
    device_counts: Mapping[str, int] = {}  # devices to request by resource; those of claims are not requested
    attachments: tuple[network_selection.Selection, ...] = ()  # networks that Multus attaches
    devices: device_names.Devices | None = None  # of nodes without a shape; None if the policy leaves one open


_NO_RAILS = RailSelection()


class UserOptions(msgspec.Struct, frozen=True):
    """What the author sets by the annotations `skip` and `delivery` (env or file; "": the policy chooses)."""

    skip: frozenset[str] = frozenset()
    delivery: str = ""


class Role(msgspec.Struct, frozen=True):
    """The role of a pod. `has_rails`: the pod gets rails. `is_launcher`: it gets the policy's Open MPI variables."""

    name: str
    has_rails: bool = False
    is_launcher: bool = False


class InjectionContext(msgspec.Struct, frozen=True):
    """What the mutators read about one pod besides its draft: policy, cluster, role, rails and the author's options."""

    policy: policies.Policy
    document: policies.PolicyDocument
    known: facts.ClusterFacts  # the cluster
    fabric_name: str
    fabric: policies.Fabric
    role: Role
    targets: tuple[int, ...]
    container_names: tuple[str, ...]  # of the targets; none for a role without rails
    mentioned: Collection[str]  # resources that app containers mention
    selected: RailSelection
    rails: tuple[compiled.ResolvedRail, ...]  # of `selected`
    devices: device_names.Devices | None  # of the rails, by the policy; None if it leaves them open
    options: UserOptions

    @property
    def needs_privilege(self) -> bool:
        """True if some rail has no resource, so that no device plugin can add its device to the container."""
        return any(rail.resource is None for rail in self.rails)


def explain_left_out(ctx: InjectionContext, level: str, setting: str) -> reason.Reason:
    """Return the reason for leaving out a setting that a pod-security level forbids.

    Raises RefusedError if the pod has no devices without the setting.
    """
    if ctx.needs_privilege:
        raise reason.RefusedError(
            "security",
            f"{facts.format_forbidden(ctx.known, level, setting)}, and nothing else gives the pod the devices of "
            f"fabric {ctx.fabric_name}; run the pod in a privileged namespace or name a device-plugin resource in the "
            "policy",
        )
    return facts.explain_forbidden(ctx.known, level, setting)


def build_context(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts, name: str, options: UserOptions
) -> InjectionContext:
    """Build the context of a pod that opted in to fabric `name`. Raises RefusedError."""
    document = policy.document
    accelerated = accelerators.find_accelerated_containers(pod, document.accelerators)
    mentioned = accelerators.list_mentioned_resources(pod)
    # Rejects an invalid annotation for every role.
    selected = _select_rails(pod, policy, name, cluster, mentioned)

    is_for_cpus = document.fabrics[name].accelerators == ()
    role = find_role(pod, is_accelerated=bool(accelerated), is_for_cpus=is_for_cpus)
    selected = selected if role.has_rails else _NO_RAILS
    targets = select_targets(pod, accelerated)
    return InjectionContext(
        policy=policy,
        document=document,
        known=cluster,
        fabric_name=name,
        fabric=document.fabrics[name],
        role=role,
        targets=targets,
        container_names=tuple([pod.spec.containers[index].name for index in targets]) if role.has_rails else (),
        mentioned=mentioned,
        selected=selected,
        rails=selected.rails,
        devices=device_names.find_devices(pod, document, selected.policy_rails)
        if document.node_shapes
        else selected.devices,
        options=options,
    )


def find_role(pod: views.Pod, *, is_accelerated: bool, is_for_cpus: bool = False) -> Role:
    """Return the role of a pod. `is_accelerated`: an app container requests an accelerator.

    A pod gets rails if it is accelerated, or an annotation asks for them. So a launcher may get rails too. With
    `is_for_cpus`, each pod gets rails unless a framework labels the pod as a launcher or a head.
    """
    name = workload_roles.find_role(pod)
    if not name and not is_accelerated and workload_roles.has_launcher_name(pod):
        name = frameworks.LAUNCHER
    rails = is_accelerated or not {names.CONTAINERS, names.RAILS}.isdisjoint(pod.metadata.annotations)
    rails = rails or (is_for_cpus and not name)
    other = frameworks.WORKER if rails else frameworks.EXCLUDED
    return Role(name or other, has_rails=rails, is_launcher=name == frameworks.LAUNCHER)


# --- rails ----------------------------------------------------------------------------------------------------


def compile_selections(document: policies.PolicyDocument) -> Mapping[str, RailSelection]:
    """Return the selection of all rails by fabric. A rail has no resource here if only its network names one."""
    return {
        name: _build_selection(compiled.resolve_rails(name, document), fabric)
        for name, fabric in document.fabrics.items()
    }


def _build_selection(rails: Collection[compiled.ResolvedRail], fabric: policies.Fabric) -> RailSelection:
    """Return the selection of these rails, in the order of the fabric."""
    resources = [rail.resource for rail in rails if rail.resource is not None]
    requested = Counter([rail.resource for rail in rails if rail.resource is not None and rail.claim is None])
    return RailSelection(
        rails=tuple(rails),
        policy_rails=tuple([rail.rail for rail in rails]),
        names=tuple([rail.rail.name for rail in rails]),
        resources=frozenset(resources),
        device_counts={name: fabric.count_devices(count) for name, count in requested.items()},
        attachments=tuple(
            [network_selection.Selection(*rail.network, rail.rail.interface or "") for rail in rails if rail.network]
        ),
        devices=device_names.list_devices_of_shape([rail.rail for rail in rails]),
    )


def _select_rails(
    pod: views.Pod, policy: policies.Policy, name: str, cluster: facts.ClusterFacts, mentioned: Collection[str]
) -> RailSelection:
    """Return the pod's rails in the fabric's order. Raises RefusedError."""
    fabric, every = policy.document.fabrics[name], policy.compile_once(compile_selections)[name]
    if fabric.transport is policies.Transport.TCP:
        return _NO_RAILS
    annotation = pod.metadata.annotations.get(names.RAILS)
    selected = every.rails
    if annotation is not None:
        try:
            chosen = intent.parse_rails(annotation, every.names)
        except intent.InvalidRailsError as error:
            value = f" {text.quote(annotation)}:" if annotation.strip() else ""
            raise reason.RefusedError("annotation", f"annotation {names.RAILS}{value} {error}") from None
        selected = tuple([rail for rail in selected if rail.rail.name in chosen])
    rails = [rail if rail.resource is not None else rail.with_resource(cluster.networks) for rail in selected]
    if annotation is None and (gpus := _count_gpus_of_node(pod, fabric, rails, policy.document, cluster)):
        rails = rails[: _count_proportional_rails(pod, gpus, len(rails), policy.document)]
    rails = [
        rail
        for rail in rails
        if rail.resource is None or rail.resource not in mentioned or not opts_out_of_resource(pod, rail.resource)
    ]
    return every if tuple(rails) == every.rails else _build_selection(rails, fabric)


def has_rail_count_only(pod: views.Pod, fabric: policies.Fabric) -> bool:
    """True if the annotation `rails`, or without it the policy, gives a number of rails and no names."""
    annotation = pod.metadata.annotations.get(names.RAILS)
    return fabric.rails_per_pod == "proportional" if annotation is None else intent.is_rail_count(annotation)


def opts_out_of_resource(pod: views.Pod, resource: str) -> bool:
    """True if the author requests "0" of the resource, so that the pod gets no rails with it."""
    containers = [container for container in pod.spec.containers if accelerators.mentions_resource(container, resource)]
    return bool(containers) and not any(accelerators.read_amount(container, resource) for container in containers)


def has_default_rail_count(pod: views.Pod, fabric: policies.Fabric) -> bool:
    """True if the namespace opts the pod in, and neither the pod nor the policy states a number of rails."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return fabric.rails_per_pod is None and names.FABRIC not in labels and names.RAILS not in annotations


def _count_gpus_of_node(
    pod: views.Pod,
    fabric: policies.Fabric,
    rails: Sequence[compiled.ResolvedRail],
    document: policies.PolicyDocument,
    cluster: facts.ClusterFacts,
) -> int:
    """Return the number of GPUs of a node if the pod gets rails in proportion to its GPUs, otherwise 0.

    `railsPerPod` of the policy decides. Without it, the pod gets a proportion if its namespace opts it in and a pod
    with all rails would take all devices of a node. Only nodes with the resources of all rails are read, and only
    accelerators that the pod requests.
    """
    if fabric.rails_per_pod is not None:
        return (fabric.gpus_per_node or 1) if fabric.rails_per_pod == "proportional" else 0
    if not has_default_rail_count(pod, fabric):
        return 0
    needed = Counter(rail.resource for rail in rails if rail.resource is not None and rail.claim is None)
    nodes = [devices for devices in cluster.node_devices or () if needed.keys() <= devices.keys()]
    most = {resource: max((devices[resource] for devices in nodes), default=0) for resource in needed}
    if not any(0 < most[resource] <= fabric.count_devices(count) for resource, count in needed.items()):
        return 0
    units, requested = document.accelerator_units, accelerators.list_mentioned_resources(pod) & {*document.accelerators}
    counts = [devices.get(name, 0) // units.get(name, 1) for name in requested for devices in nodes]
    return fabric.gpus_per_node or max(counts, default=0)


def _count_proportional_rails(pod: views.Pod, gpus: int, rails: int, document: policies.PolicyDocument) -> int:
    """Return the number of rails in proportion to the pod's GPUs: ceil(GPUs x rails / GPUs of a node), at least one.

    A pod gets the first rails of the fabric, so that all pods of a gang have the same. A pod gets all rails if its GPUs
    come from its author's claims, because their number is unknown.
    """
    if accelerators.has_unknown_count(pod, document.accelerators):
        return rails
    accelerator_count = sum(accelerators.count_by_container(pod, document.accelerators, document.accelerator_units))
    return max(1, min(-(-accelerator_count * rails // gpus), rails))


# --- the author's options: docs/interface.md 1.1 and 1.3 -------------------------------------------------------


def read_options(pod: views.Pod, skippable: Sequence[str]) -> UserOptions:
    """Return the options in a pod's annotations. Raises RefusedError, also for words of `skip` not in `skippable`."""
    annotations = pod.metadata.annotations
    segment = annotations.get(names.SEGMENT)
    if segment is not None and intent.read_segment(segment) is None:
        raise _build_annotation_refusal(
            names.SEGMENT, segment, " is not a number of ranks from 1 to 999999; correct or remove it"
        )
    skip, delivery = annotations.get(names.SKIP), annotations.get(names.DELIVERY)
    words = [] if skip is None else [word.strip() for word in skip.split(",")]
    for word in words:
        if word not in skippable:
            raise _build_annotation_refusal(
                names.SKIP, skip or "", f": {text.quote(word)} is not one of {', '.join(skippable)}"
            )
    if delivery is not None and delivery.strip() not in ("env", "file"):
        raise _build_annotation_refusal(names.DELIVERY, delivery, " is not one of env, file")
    return UserOptions(frozenset(words), (delivery or "").strip())


def _build_annotation_refusal(key: str, value: str, problem: str) -> reason.RefusedError:
    return reason.RefusedError("annotation", f"annotation {key} {text.quote(value)}{problem}")


# --- containers -------------------------------------------------------------------------------------------------
# Those in the annotation, otherwise those with accelerators. Only app containers can be selected: Multus and kubelet's
# device report ignore the others. A pod without either has one: the container that kubectl selects by default, which
# service meshes name beside their proxies, otherwise the first.

MAX_TARGETS = 256  # each target gets a dozen JSON Patch operations, and no real pod has so many containers


def select_targets(pod: views.Pod, accelerated: Sequence[int]) -> tuple[int, ...]:
    """Return the indexes of the target containers in spec.containers, ascending. Raises RefusedError."""
    containers, annotation = pod.spec.containers, pod.metadata.annotations.get(names.CONTAINERS)
    if not containers:
        raise reason.RefusedError("annotation", "spec.containers is empty; a pod needs a container")
    if annotation is not None:
        targets = _parse_container_names(annotation, _index_containers(containers))
    elif accelerated or len(containers) == 1:
        targets = tuple(accelerated) or (0,)
    else:
        # a webhook may have put its container first after an earlier call, whose record names the one of that call
        preferred = (*intent.read_record(pod).containers, pod.metadata.annotations.get(names.DEFAULT_CONTAINER, ""))
        index_by_name = _index_containers(containers)
        targets = next(((index_by_name[name],) for name in preferred if name in index_by_name), (0,))
    if len(targets) > MAX_TARGETS:
        raise reason.RefusedError(
            "annotation",
            f"{len(targets)} containers are selected for the fabric; the limit is {MAX_TARGETS}: "
            f"name those that need it in annotation {names.CONTAINERS}",
        )
    return targets


def _parse_container_names(annotation: str, index_by_name: Mapping[str, int]) -> tuple[int, ...]:
    selected_names = [word.strip() for word in annotation.split(",")]
    for word in selected_names:
        if word not in index_by_name:
            problem = f"is not an app container of this pod; it has {', '.join(index_by_name)}"
            raise _build_annotation_refusal(names.CONTAINERS, annotation, f": {text.quote(word)} {problem}")
    return tuple(sorted({index_by_name[word] for word in selected_names}))


def _index_containers(containers: Sequence[views.Container]) -> Mapping[str, int]:
    """Return the index of each container by its name. The first of containers with the same name counts."""
    index_by_name: dict[str, int] = {}
    for index, container in enumerate(containers):
        index_by_name.setdefault(container.name, index)
    return index_by_name
