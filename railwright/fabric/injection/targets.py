"""Selects the containers that get the fabric: those in the annotation, those with accelerators, otherwise one.

Only app containers can be selected: Multus and kubelet's device report ignore the others. The last choice is the
container that already has most of the fabric, because another webhook may have put a sidecar in front of it between two
calls. Then known sidecars come last, and the container that kubectl selects by default comes first. The record is not
read.
"""

from collections.abc import Callable, Sequence

from railwright.fabric import names, text, views
from railwright.fabric.reasons import rejections

InjectionScore = tuple[int, ...]  # compared lexicographically; larger means more of the fabric is present
_MAX_TARGETS = 256  # each target gets a dozen JSON Patch operations, and no real pod has so many containers


def select_targets(
    pod: views.Pod, accelerated: Sequence[int], measure: Callable[[views.Container], InjectionScore]
) -> tuple[int, ...]:
    """Return indexes in spec.containers, ascending. `measure` returns how much of the fabric a container has.

    Raises RefusedError.
    """
    if not pod.spec.containers:
        raise rejections.RefusedError("containers", "spec.containers is empty; a pod needs a container")
    targets = _select_containers(pod, accelerated, measure)
    if len(targets) > _MAX_TARGETS:
        raise rejections.RefusedError(
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
            raise rejections.RefusedError(
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
