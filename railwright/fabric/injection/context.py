"""Builds the context of one injection: fabric, role, containers, rails and user options of a pod that opted in.

Nothing in it changes while the mutators change the pod. Binding builds the same context, so that both use the same
rails. The rules for rails are in docs/interface.md 1.3 and 3.2.
"""

import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import msgspec

from railwright.fabric import intent, names, text, views
from railwright.fabric.claims import drivers
from railwright.fabric.injection import accelerators, env_tables, facts, roles
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

InjectionScore = tuple[int, ...]  # compared lexicographically; larger means more of the fabric is present
SKIPPED = reason.make(AdmissionCode.SKIPPED_BY_ANNOTATION)


class RailSelection(msgspec.Struct, frozen=True):
    """The rails of a pod in the fabric's order, with what follows from them and the policy."""

    rails: tuple[compiled.ResolvedRail, ...] = ()
    policy_rails: tuple[policies.Rail, ...] = ()
    names: tuple[str, ...] = ()
    resources: frozenset[str] = frozenset()  # of the rails that have one
    device_counts: Mapping[str, int] = {}  # devices to request by resource; those of claims are not requested
    attachments: tuple[network_selection.Selection, ...] = ()  # networks that Multus attaches


_NO_RAILS = RailSelection()


class UserOptions(msgspec.Struct, frozen=True):
    """The user's options. `delivery` None leaves the choice to the policy."""

    skip: frozenset[str] = frozenset()
    delivery: Literal["env", "file"] | None = None


_DEFAULTS = UserOptions()


class InjectionContext(msgspec.Struct, frozen=True):
    """The inputs of all mutators for one pod, beside the pod as it is by then."""

    policy: policies.Policy
    known: facts.ClusterFacts  # the cluster
    fabric_name: str
    fabric: policies.Fabric
    role: roles.Role
    targets: tuple[int, ...]
    selected: RailSelection
    options: UserOptions
    accelerated: bool  # an app container requests an accelerator, or uses a claim of the pod's author

    @property
    def rails(self) -> tuple[compiled.ResolvedRail, ...]:
        """Return the rails of the pod."""
        return self.selected.rails

    @property
    def needs_privilege(self) -> bool:
        """True if some rail has no resource, so that no device plugin can add its device to the container."""
        return any(rail.resource is None for rail in self.rails)

    @property
    def document(self) -> policies.PolicyDocument:
        """Return the policy's document."""
        return self.policy.document


def build(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts, name: str, options: UserOptions
) -> InjectionContext:
    """Build the context of a pod that opted in to fabric `name`. Raises RefusedError."""
    document = policy.document
    accelerated = accelerators.find_containers(pod, document.accelerators)
    # Rejects an invalid annotation for every role.
    selected = _select_rails(pod, policy, name, cluster)

    def measure(container: views.Container) -> InjectionScore:
        return _measure_injection(container, policy, name, selected)

    def is_known_rank() -> bool:
        """True if a container has devices or mounts of the fabric, which it got as a rank of its template."""
        return cluster.job_accelerated is False or any(any(measure(item)[:2]) for item in pod.spec.containers)

    role = roles.find_role(
        pod,
        document.roles,
        accelerated=bool(accelerated),
        job_accelerated=bool(cluster.job_accelerated),
        is_known_rank=is_known_rank,
    )
    return InjectionContext(
        policy=policy,
        known=cluster,
        fabric_name=name,
        fabric=document.fabrics[name],
        role=role,
        targets=select_targets(pod, accelerated, measure),
        selected=selected if role.rails else _NO_RAILS,
        options=options,
        accelerated=bool(accelerated),
    )


# --- rails ----------------------------------------------------------------------------------------------------


def compile_selections(document: policies.PolicyDocument) -> Mapping[str, RailSelection]:
    """Return all rails of each fabric, by its name: what most pods get."""
    return {
        name: _build_selection(tuple(fabric.rails.values()), fabric)
        for name, fabric in compiled.compile_policy(document).fabrics.items()
    }


def _build_selection(rails: Sequence[compiled.ResolvedRail], fabric: compiled.CompiledFabric) -> RailSelection:
    resources = [rail.resource for rail in rails if rail.resource is not None]
    requested = Counter(rail.resource for rail in rails if rail.resource is not None and rail.claim is None)
    # Drivers of claims attach the networks themselves.
    is_attached = fabric.claims is None or fabric.claims.driver.form is drivers.Form.NONE
    return RailSelection(
        rails=tuple(rails),
        policy_rails=tuple([rail.rail for rail in rails]),
        names=tuple([rail.name for rail in rails]),
        resources=frozenset(resources),
        device_counts={name: fabric.fabric.count_devices(count) for name, count in requested.items()},
        attachments=tuple(
            [
                network_selection.Selection(*rail.network, rail.rail.interface or "")
                for rail in rails
                if is_attached and rail.network
            ]
        ),
    )


def _select_rails(pod: views.Pod, policy: policies.Policy, name: str, cluster: facts.ClusterFacts) -> RailSelection:
    """Return the pod's rails in the fabric's order. Raises RefusedError."""
    compiled_fabric = policy.compile_once(compiled.compile_policy).fabrics[name]
    fabric = compiled_fabric.fabric
    if fabric.transport is policies.Transport.TCP:
        return _NO_RAILS
    selection = policy.compile_once(compile_selections)[name]
    annotation = pod.metadata.annotations.get(names.RAILS)
    rails: Sequence[compiled.ResolvedRail] = selection.rails
    if annotation is not None and annotation.strip() != names.RAILS_NONE:
        rails = [compiled_fabric.rails[rail.name] for rail in _parse_rails(annotation, fabric.rails)]
    elif fabric.rails_per_pod == "proportional":
        rails = rails[: _count_proportional(pod, fabric, policy.document)]
    rails = [rail.with_resource(cluster.networks) for rail in rails]
    mentioned = accelerators.list_mentioned(pod)
    rails = [
        rail
        for rail in rails
        if rail.resource is None or rail.resource not in mentioned or not is_opted_out(pod, rail.resource)
    ]
    is_whole = len(rails) == len(selection.rails) and all(map(operator.is_, rails, selection.rails))
    return selection if is_whole else _build_selection(rails, compiled_fabric)


def is_number_only(pod: views.Pod, fabric: policies.Fabric) -> bool:
    """True if the pod asks for a number of rails, not for certain ones."""
    annotation = pod.metadata.annotations.get(names.RAILS, names.RAILS_NONE).strip()
    return intent.is_count(annotation) if annotation != names.RAILS_NONE else fabric.rails_per_pod == "proportional"


def is_opted_out(pod: views.Pod, resource: str) -> bool:
    """True if the pod names the resource and requests none of it."""
    containers = [container for container in pod.spec.containers if accelerators.mentions(container, resource)]
    return bool(containers) and not any(accelerators.read_amount(container, resource) for container in containers)


def _count_proportional(pod: views.Pod, fabric: policies.Fabric, document: policies.PolicyDocument) -> int:
    """Return ceil(GPUs x rails / GPUs per node), at least one.

    A pod gets the first rails of the fabric, so that all pods of a gang have the same.
    """
    accelerator_count = sum(accelerators.count_in_containers(pod, document.accelerators))
    share = -(-accelerator_count * len(fabric.rails) // (fabric.gpus_per_node or 1))
    return max(1, min(share, len(fabric.rails)))


def _parse_rails(annotation: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    rail_names = [rail.name for rail in rails]
    try:
        selected = intent.parse_rails(annotation, rail_names)
    except intent.InvalidRailsError as error:
        value = f" {text.quote(annotation)}:" if annotation.strip() else ""
        raise reason.RefusedError("rails", f"annotation {names.RAILS}{value} {error}") from None
    return tuple([rail for rail in rails if rail.name in selected])


# --- the author's options: docs/interface.md 1.1 and 1.3 -------------------------------------------------------


def read_options(pod: views.Pod, skippable: Sequence[str]) -> UserOptions:
    """Return the options of a pod. `skippable` are the words of annotation `skip`. Raises RefusedError for others."""
    annotations = pod.metadata.annotations
    if names.PLACEMENT in annotations:
        raise reason.RefusedError(
            "placement",
            f"annotation {names.PLACEMENT} is written by railwright at binding and may not be set before; remove it",
        )
    segment = annotations.get(names.SEGMENT)
    if segment is not None and intent.read_segment(segment) is None:
        raise reason.RefusedError(
            "annotation",
            f"annotation {names.SEGMENT} {text.quote(segment)} is not a number of ranks from 1 to 999999; "
            "correct or remove it",
        )
    if names.SKIP not in annotations and names.DELIVERY not in annotations:
        return _DEFAULTS
    return UserOptions(
        _parse_skip(annotations.get(names.SKIP), skippable), _parse_delivery(annotations.get(names.DELIVERY))
    )


def _parse_skip(annotation: str | None, skippable: Sequence[str]) -> frozenset[str]:
    if annotation is None:
        return frozenset()
    words = [word.strip() for word in annotation.split(",")]
    for word in words:
        if word not in skippable:
            raise reason.RefusedError(
                "annotation",
                f"annotation {names.SKIP} {text.quote(annotation)}: {text.quote(word)} is not one of "
                f"{', '.join(skippable)}",
            )
    return frozenset(words)


def _parse_delivery(annotation: str | None) -> Literal["env", "file"] | None:
    if annotation is None:
        return None
    word = annotation.strip()
    if word == "env":
        return "env"
    if word == "file":
        return "file"
    raise reason.RefusedError(
        "annotation",
        f"annotation {names.DELIVERY} {text.quote(annotation)} is not one of env, file",
    )


# --- how much of the fabric a container has ---------------------------------------------------------------------


def _measure_injection(
    container: views.Container, policy: policies.Policy, name: str, selected: RailSelection
) -> InjectionScore:
    """Return how much of fabric `name` a container has.

    Devices count more than mounts, and mounts more than variables, then capabilities, then privilege. A template gets
    only the first two.
    """
    fabric = policy.document.fabrics[name]
    literals: Collection[tuple[str, str]] = ()
    if container.env_or_none:
        literals = policy.compile_once(env_tables.Tables).list_known_literals(name, selected.policy_rails)
    security = container.security_context
    added_capabilities = (security.capabilities.add if security and security.capabilities else None) or ()
    return (
        sum(accelerators.read_amount(container, resource) > 0 for resource in selected.resources),
        sum(mount.name.startswith(names.VOLUME_PREFIX) for mount in container.volume_mounts),
        sum((entry.name, entry.value) in literals for entry in container.env),
        sum(capability in added_capabilities for capability in fabric.security.capabilities),
        int(fabric.security.privileged and bool(security and security.privileged)),
    )


# --- containers -------------------------------------------------------------------------------------------------
# Those in the annotation, those with accelerators, otherwise one. Only app containers can be selected: Multus and
# kubelet's device report ignore the others. The last choice is the container that already has most of the fabric,
# because another webhook may have put a sidecar in front of it between two calls. Then known sidecars come last, and
# the container that kubectl selects by default comes first. The record is not read.

_MAX_TARGETS = 256  # each target gets a dozen JSON Patch operations, and no real pod has so many containers


def select_targets(
    pod: views.Pod, accelerated: Sequence[int], measure: Callable[[views.Container], InjectionScore]
) -> tuple[int, ...]:
    """Return indexes in spec.containers, ascending. `measure` returns how much of the fabric a container has.

    Raises RefusedError.
    """
    if not pod.spec.containers:
        raise reason.RefusedError("containers", "spec.containers is empty; a pod needs a container")
    targets = _select_containers(pod, accelerated, measure)
    if len(targets) > _MAX_TARGETS:
        raise reason.RefusedError(
            "containers",
            f"{len(targets)} containers are selected for the fabric; the limit is {_MAX_TARGETS}: "
            f"name those that need it in annotation {names.CONTAINERS}",
        )
    return targets


def _select_containers(
    pod: views.Pod, accelerated: Sequence[int], measure: Callable[[views.Container], InjectionScore]
) -> tuple[int, ...]:
    containers = pod.spec.containers
    annotation = pod.metadata.annotations.get(names.CONTAINERS)
    if annotation is not None:
        return _parse_names(annotation, [container.name for container in containers])
    if accelerated:
        return tuple(accelerated)
    if len(containers) == 1:
        return (0,)
    default = pod.metadata.annotations.get(names.DEFAULT_CONTAINER)
    scores = [(measure(container), not is_sidecar(container), container.name == default) for container in containers]
    return (scores.index(max(scores)),)


def select_launchers(pod: views.Pod, selected: tuple[int, ...]) -> tuple[int, ...]:
    """Return the containers that may run mpirun in a launcher. `selected` are the launcher's targets.

    Without an annotation these are all containers except known sidecars: an unknown sidecar may be the first container,
    and mpirun's settings are harmless to it.
    """
    if names.CONTAINERS in pod.metadata.annotations:
        return selected
    candidates = tuple([index for index, container in enumerate(pod.spec.containers) if not is_sidecar(container)])
    return candidates if set(selected) <= set(candidates) and len(candidates) <= _MAX_TARGETS else selected


def _parse_names(annotation: str, container_names: Sequence[str]) -> tuple[int, ...]:
    selected_names = [word.strip() for word in annotation.split(",")]
    # The first of containers with the same name counts.
    index_by_name = {name: index for index, name in reversed([*enumerate(container_names)])}
    for word in selected_names:
        if word not in index_by_name:
            raise reason.RefusedError(
                "containers",
                f"annotation {names.CONTAINERS} {text.quote(annotation)}: {text.quote(word)} is not an app "
                f"container of this pod; it has {', '.join(container_names)}",
            )
    return tuple(sorted({index_by_name[word] for word in selected_names}))


# --- sidecars -------------------------------------------------------------------------------------------------

# Proxies and agents that other webhooks add to a pod, often as its first container. The names are those of the
# projects. Native sidecars are init containers and need no entry.
SIDECARS = frozenset(
    {
        # service meshes
        "istio-proxy",  # Istio; first under holdApplicationUntilProxyStarts
        "linkerd-proxy",  # Linkerd; first since 2.11 (linkerd2 issue 7122)
        "linkerd-debug",
        "kuma-sidecar",  # Kuma and Kong Mesh
        "consul-dataplane",  # Consul
        "envoy-sidecar",  # Consul before 1.14
        "envoy",  # AWS App Mesh, Open Service Mesh
        "nginx-mesh-sidecar",  # NGINX Service Mesh
        "daprd",  # Dapr
        "queue-proxy",  # Knative
        # secrets, identities and databases
        "vault-agent",  # Vault Agent Injector
        "azwi-proxy",  # Azure Workload Identity
        "cloud-sql-proxy",  # the name in Google's examples
        "cloudsql-proxy",
        "alloydb-auth-proxy",
        # storage
        "gke-gcsfuse-sidecar",  # Cloud Storage FUSE on GKE; first
        "jfs-mount",  # JuiceFS; first
        # telemetry
        "otc-container",  # OpenTelemetry Operator
    }
)
_SIDECAR_PREFIXES = (
    "consul-dataplane-",  # with the service's name, in a pod of several services
    "csql-",  # Cloud SQL Proxy Operator; with namespace and name
    "fluid-fuse-",  # Fluid; with a number; first
    "jfs-mount-",  # JuiceFS; with a number, in a pod of several volumes
)


def is_sidecar(container: views.Container) -> bool:
    """True for a container with the name of a known proxy or agent."""
    return container.name in SIDECARS or container.name.startswith(_SIDECAR_PREFIXES)
