"""The values of the Helm chart: every key with its meaning, default and type.

`build.py` generates the chart's values.yaml and its schema from this module.
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
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32)]  # the ResourceQuota of the namespace


def describe(text: str) -> msgspec.Meta:
    """Return the description of a key."""
    return msgspec.Meta(description=text)


def default(value: Any) -> Any:
    """Return a field whose default is this list or mapping."""
    return msgspec.field(default_factory=lambda: copy.deepcopy(value))


def resources(cpu: str, memory: str, *, limit: str) -> Any:
    """Return the default of a container's resources. No CPU limit: it would throttle the server on idle cores."""
    return default({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}})


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all tables of values: keys in camelCase, unknown keys are rejected."""


class Pods(Values, frozen=True, kw_only=True):
    """Settings of the pods of all components."""

    priority_class_name: Annotated[str, describe("PriorityClass of the pods")] = "system-cluster-critical"
    node_selector: Annotated[Strings, describe("nodeSelector of the pods")] = default({})
    tolerations: Annotated[list[Object], describe("Tolerations of the pods")] = default([])
    annotations: Annotated[Strings, describe("Annotations of the pods")] = default({})
    security_context: Annotated[Object, describe("securityContext of the pods")] = default(
        {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    )


class Image(Values, frozen=True, kw_only=True):
    """The image, which contains all components."""

    repository: Annotated[str, describe("Registry and name of the image")] = "railwright"
    tag: Annotated[
        str,
        describe(
            "Tag of the image, its digest as @sha256:..., or both as TAG@sha256:... Empty: the chart's appVersion"
        ),
        msgspec.Meta(pattern=r"^(\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?$"),
    ] = ""
    pull_secrets: Annotated[list[Object], describe("imagePullSecrets of the pods, such as [{name: registry}]")] = (
        default([])
    )


ExtraArgs = Annotated[list[str], describe("Additional command-line options; `--help` lists them")]
Peers = list[Object]


class Webhook(Values, frozen=True, kw_only=True):
    """The admission webhook."""

    replicas: Annotated[
        Replicas, describe("Number of replicas; with one, admission stops while it restarts or its node is drained")
    ] = 2
    resources: Annotated[Object, describe("Resources of the container")] = resources("100m", "192Mi", limit="512Mi")
    secure_port: Annotated[
        Port, describe("Port of the container that API servers reach; private GKE clusters allow 443 and 10250 only")
    ] = 9443
    host_network: Annotated[
        bool, describe("Run the pods on the host network; needs a namespace of the Pod Security level privileged")
    ] = False
    ops_port: Annotated[
        Port, describe("Port of the container for probes and metrics; free on each node with the host network")
    ] = 8080
    failure_policy: Annotated[
        Literal["Fail", "Ignore"],
        describe(
            "What happens to opted-in pods and workloads while the webhook is down: Fail rejects them, Ignore runs them"
            " over TCP"
        ),
    ] = "Fail"
    excluded_namespaces: Annotated[
        list[Word], describe("Namespaces to exclude, besides kube-system and that of the release")
    ] = default([])
    claims: Annotated[
        bool,
        describe(
            "Grant the rights for fabrics with `claims` or `nvlinkSegment`: watch waiting pods, and read and create "
            "ResourceClaimTemplates. A policy.document with such a fabric grants them too"
        ),
    ] = False
    extra_args: ExtraArgs = default([])


class Dashboard(Values, frozen=True, kw_only=True):
    """The extender's dashboard."""

    enabled: Annotated[
        bool,
        describe("Serve the dashboard on port 8714. Readers need its ClusterRole (docs/operator-guide.md)"),
    ] = False


class Volcano(Values, frozen=True, kw_only=True):
    """A port for Volcano, which cannot present a client certificate."""

    enabled: Annotated[
        bool, describe("Serve Volcano on a port of its own, 8715 of the Service, without client certificates")
    ] = False
    allow_from: Annotated[Peers, describe("Peers that the NetworkPolicy lets reach Volcano's port. Empty: all")] = (
        default(
            [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "volcano-system"}},
                    "podSelector": {"matchLabels": {"app": "volcano-scheduler"}},
                }
            ]
        )
    )


class Extender(Values, frozen=True, kw_only=True):
    """The scheduler extender."""

    enabled: Annotated[bool, describe("Install the extender; false installs admission only")] = False
    replicas: Annotated[Replicas, describe("Number of replicas; each answers schedulers")] = 2
    resources: Annotated[Object, describe("Resources of the container")] = resources("100m", "256Mi", limit="1Gi")
    plain_http: Annotated[bool, describe("Serve without TLS, for a Volcano without SSL_CERT_FILE")] = False
    client_auth: Annotated[
        bool,
        describe("Require kube-scheduler's client certificate; configure it first, and for Volcano extender.volcano"),
    ] = False
    allow_from: Annotated[
        Peers,
        describe("Peers that the NetworkPolicy lets reach the extender, such as the control plane's hosts. Empty: all"),
    ] = default([])
    extra_args: ExtraArgs = default([])
    volcano: Annotated[Volcano, describe("Port for Volcano, which cannot present a client certificate")] = Volcano()
    dashboard: Annotated[Dashboard, describe("Dashboard of gangs and rails")] = Dashboard()


class Scheduler(Values, frozen=True, kw_only=True):
    """A kube-scheduler that calls the extender."""

    enabled: Annotated[
        bool,
        describe(
            "Install a second kube-scheduler, for clusters whose own cannot be configured; needs extender.enabled, and "
            "placement.schedulerName in the policy"
        ),
    ] = False
    repository: Annotated[str, describe("Its image; the tag is the cluster's version")] = (
        "registry.k8s.io/kube-scheduler"
    )


class Certificates(Values, frozen=True, kw_only=True):
    """The source of the certificates, and the rotator."""

    mode: Annotated[
        Literal["rotator", "cert-manager", "existing"],
        describe("Who writes Secrets and caBundle: railwright's rotator, cert-manager, or your own process"),
    ] = "rotator"
    ca_bundle: Annotated[
        str, describe("CA bundle in PEM, for mode existing only. Empty: you write caBundle yourself")
    ] = ""
    client_auth: Annotated[
        bool, describe("Require a client certificate from API servers; configure the API servers first")
    ] = False
    extra_args: ExtraArgs = default([])


class Policy(Values, frozen=True, kw_only=True):
    """The ConfigMap with the policy."""

    document: Annotated[
        str,
        describe("Text of the policy, restored by each upgrade. Empty: you manage the ConfigMap, not the chart"),
    ] = ""


class AdmissionPolicy(Values, frozen=True, kw_only=True):
    """The API server's own check for opted-in pods that were not injected."""

    mode: Annotated[Literal["Deny", "Warn", "Off"], describe("What happens to such a pod; Off disables the check")] = (
        "Off"
    )
    accelerators: Annotated[
        list[Word],
        describe("Accelerators of the policy, for pods that opted in by their namespace"),
        msgspec.Meta(min_length=1),
    ] = default(["nvidia.com/gpu"])


class NetworkPolicy(Values, frozen=True, kw_only=True):
    """NetworkPolicies that allow the required traffic only."""

    enabled: Annotated[bool, describe("Create NetworkPolicies")] = True
    metrics_namespace: Annotated[str, describe("Namespace of Prometheus")] = "monitoring"


class Metrics(Values, frozen=True, kw_only=True):
    """Objects for the Prometheus operator and Grafana's sidecar."""

    enabled: Annotated[
        bool,
        describe(
            "Create ServiceMonitor, PrometheusRule with the alerts, and ConfigMap with the dashboards; needs the CRDs "
            "of monitoring.coreos.com"
        ),
    ] = False
    labels: Annotated[
        Strings,
        describe(
            "Additional labels of ServiceMonitor and PrometheusRule, such as release: kube-prometheus-stack, by which "
            "Prometheus selects them"
        ),
    ] = default({})


class Chart(Values, frozen=True, kw_only=True):
    """All values of the chart."""

    fullname_override: Annotated[
        Name, describe("First part of the name of every object. Empty: from the release's name")
    ] = ""
    common_labels: Annotated[Strings, describe("Additional labels of every object and pod")] = default({})
    cluster_domain: Annotated[Domain, describe("DNS domain of the cluster, for the servers' certificates")] = (
        "cluster.local"
    )
    image: Annotated[Image, describe("Image of all components")] = Image()
    pods: Annotated[Pods, describe("Pods of all components")] = Pods()
    webhook: Annotated[Webhook, describe("Admission webhook")] = Webhook()
    extender: Annotated[Extender, describe("Scheduler extender")] = Extender()
    scheduler: Annotated[Scheduler, describe("Second kube-scheduler")] = Scheduler()
    certificates: Annotated[Certificates, describe("Source of the certificates, and the rotator")] = Certificates()
    policy: Annotated[Policy, describe("ConfigMap with the policy")] = Policy()
    admission_policy: Annotated[
        AdmissionPolicy, describe("The API server's own check for opted-in pods without injection")
    ] = AdmissionPolicy()
    network_policy: Annotated[NetworkPolicy, describe("NetworkPolicies that allow the required traffic only")] = (
        NetworkPolicy()
    )
    metrics: Annotated[Metrics, describe("Objects for the Prometheus operator and Grafana's sidecar")] = Metrics()
    quota: Annotated[
        bool,
        describe(
            "Create a ResourceQuota that allows critical pods outside kube-system. On GKE, which requires it, it is"
            " always created"
        ),
    ] = False
    global_: Annotated[Object, describe("Helm's global values, if this is a subchart")] = msgspec.field(
        name="global", default_factory=dict
    )


class Row(msgspec.Struct, frozen=True):
    """One key of the values: its path, default and meaning."""

    path: tuple[str, ...]
    default: Any
    text: str
    table: bool  # True if it contains further keys


def rows(of: type[msgspec.Struct] = Chart, above: tuple[str, ...] = ()) -> list[Row]:
    """Return every key in the order of the file; a table comes before its keys."""
    result = []
    for field in msgspec.structs.fields(of):
        value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        text = msgspec.json.schema(field.type).get("description", "")
        path = (*above, field.encode_name)
        table = isinstance(value, msgspec.Struct)
        result.append(Row(path, value, text, table))
        if table:
            result += rows(type(value), path)
    return result


def schema() -> Object:
    """Return the JSON Schema of the values; it rejects unknown keys."""
    schema_tree = msgspec.json.schema(Chart)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema_tree}
