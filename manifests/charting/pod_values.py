"""Values that the pods of all components have, and the types of values.

The tables of the components are in `values.py`.
"""

import copy
from typing import Annotated, Any, Literal

import msgspec

Object = dict[str, Any]
Strings = dict[str, str]
Word = Annotated[
    str, msgspec.Meta(pattern="^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$")
]  # it is inserted into an expression
Name = Annotated[str, msgspec.Meta(pattern="^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$", max_length=40)]
Domain = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
Duration = Annotated[str, msgspec.Meta(pattern="^([0-9]+(ms|s|m|h))*$")]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32)]  # the ResourceQuota of the namespace
Seconds = Annotated[int, msgspec.Meta(ge=1, le=30)]  # the API server's own bounds


def describe(text: str) -> msgspec.Meta:
    """Return the description of a key."""
    return msgspec.Meta(description=text)


def default(value: Any) -> Any:
    """Return a field whose default is this list or mapping."""
    return msgspec.field(default_factory=lambda: copy.deepcopy(value))


def resources(cpu: str, memory: str, *, limit: str) -> Any:
    """Return the default of a container's resources. No CPU limit: it would throttle the server on idle cores."""
    return default({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}})


def probe(path: str, **seconds: int) -> Any:
    """Return the default of a probe of the port for probes and metrics."""
    return default({"httpGet": {"path": path, "port": "ops"}, **seconds})


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all tables of values: keys in camelCase, unknown keys are rejected."""


class ServiceAccount(Values, frozen=True, kw_only=True):
    """ServiceAccount of a component."""

    annotations: Annotated[Strings, describe("Annotations of the ServiceAccount, such as an IAM role")] = default({})


class DisruptionBudget(Values, frozen=True, kw_only=True):
    """PodDisruptionBudget of a component."""

    enabled: Annotated[bool, describe("Create a PodDisruptionBudget")] = True
    max_unavailable: Annotated[
        int | str,
        describe("Number or percentage of replicas that may be evicted at a time; 1 lets the only replica be evicted"),
    ] = 1


class Service(Values, frozen=True, kw_only=True):
    """Service of a component."""

    type: Annotated[Literal["ClusterIP", "NodePort", "LoadBalancer"], describe("Type of the Service")] = "ClusterIP"
    annotations: Annotated[Strings, describe("Annotations of the Service")] = default({})
    ip_family_policy: Annotated[
        Literal["", "SingleStack", "PreferDualStack", "RequireDualStack"],
        describe("ipFamilyPolicy of the Service. Empty: the cluster's default"),
    ] = ""
    ip_families: Annotated[
        list[Literal["IPv4", "IPv6"]], describe("ipFamilies of the Service. Empty: the cluster's default")
    ] = default([])


class Pod(Values, frozen=True, kw_only=True):
    """Settings of every component's pods."""

    priority_class_name: Annotated[str, describe("PriorityClass of the pods")] = "system-cluster-critical"
    node_selector: Annotated[Strings, describe("nodeSelector of the pods")] = default({})
    tolerations: Annotated[list[Object], describe("Tolerations of the pods")] = default([])
    affinity: Annotated[
        Object,
        describe(
            "Affinity of the pods; replaces the default preference for separate nodes, not the spread constraints"
        ),
    ] = default({})
    topology_spread_constraints: Annotated[
        list[Object] | None,
        describe(
            "Spread constraints of the pods. Null: separate nodes if possible, separate zones preferred. []: none"
        ),
    ] = None
    revision_history_limit: Annotated[int, describe("Number of old ReplicaSets to keep"), msgspec.Meta(ge=0)] = 10
    pod_annotations: Annotated[Strings, describe("Annotations of the pods")] = default({})
    pod_labels: Annotated[Strings, describe("Additional labels of the pods")] = default({})
    pod_security_context: Annotated[Object, describe("securityContext of the pods")] = default(
        {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    )
    security_context: Annotated[Object, describe("securityContext of the container")] = default(
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    )
    startup_probe: Annotated[Object, describe("Startup probe of the container")] = probe(
        "/livez", periodSeconds=2, timeoutSeconds=5, failureThreshold=150
    )
    readiness_probe: Annotated[Object, describe("Readiness probe of the container")] = probe("/readyz", periodSeconds=2)
    liveness_probe: Annotated[Object, describe("Liveness probe of the container")] = probe("/livez", timeoutSeconds=5)
    extra_args: Annotated[list[str], describe("Additional command-line options; `--help` lists them")] = default([])
    extra_env: Annotated[list[Object], describe("Additional environment variables of the container")] = default([])
    extra_volumes: Annotated[list[Object], describe("Additional volumes of the pods")] = default([])
    extra_volume_mounts: Annotated[list[Object], describe("Additional volume mounts of the container")] = default([])
    host_network: Annotated[
        bool, describe("Run the pods on the host network; needs a namespace of the Pod Security level privileged")
    ] = False
    ops_port: Annotated[Port, describe("Port of the container for probes and metrics")] = 8080
    service_account: Annotated[ServiceAccount, describe("ServiceAccount of the pods")] = ServiceAccount()
    pod_disruption_budget: Annotated[DisruptionBudget, describe("PodDisruptionBudget of the pods")] = DisruptionBudget()
