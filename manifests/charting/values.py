"""The values of the Helm chart: every key with its meaning, default and type.

`build.py` generates the chart's values.yaml, its schema and the tables of its pages from this module.
"""

from typing import Annotated, Any, Literal

import msgspec

Object = dict[str, Any]
Word = Annotated[
    str, msgspec.Meta(pattern="^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$")
]  # it is inserted into an expression
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32)]  # the ResourceQuota of the namespace
Seconds = Annotated[int, msgspec.Meta(ge=1, le=30)]  # the API server's own bounds


def describe(text: str) -> msgspec.Meta:
    """Return the description of a key."""
    return msgspec.Meta(description=text)


def resources(cpu: str, memory: str, *, limit: str) -> Object:
    """Return the default of a container's resources. No CPU limit: it would throttle the server on idle cores."""
    default: Object = msgspec.field(
        default_factory=lambda: {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}
    )
    return default


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all tables of values: keys in camelCase, unknown keys are rejected."""


class Image(Values, frozen=True, kw_only=True):
    """The image, which contains all components."""

    repository: Annotated[str, describe("registry and name")] = "railwright"
    tag: Annotated[str, describe("default: the chart's appVersion")] = ""
    digest: Annotated[
        str, describe("sha256:...; overrides the tag"), msgspec.Meta(pattern="^(sha256:[0-9a-f]{64})?$")
    ] = ""
    pull_policy: Annotated[
        Literal["", "Always", "IfNotPresent", "Never"], describe("default: chosen by Kubernetes from the tag")
    ] = ""
    pull_secrets: Annotated[list[Object], describe("imagePullSecrets of the pods, such as [{name: registry}]")] = []


class Pod(Values, frozen=True, kw_only=True):
    """Settings of every component's pods."""

    priority_class_name: Annotated[str, describe("PriorityClass of the pods")] = "system-cluster-critical"
    node_selector: Annotated[Object, describe("nodeSelector of the pods")] = {}
    tolerations: Annotated[list[Object], describe("tolerations of the pods")] = []
    affinity: Annotated[
        Object,
        describe("affinity of the pods; replaces the default preference for separate nodes, not the spread constraint"),
    ] = {}
    extra_args: Annotated[list[str], describe("additional command-line options; `--help` lists them")] = []


class Webhook(Pod, frozen=True, kw_only=True):
    """The admission webhook."""

    replicas: Annotated[
        Replicas, describe("number of replicas; with one, admission stops while it restarts or its node is drained")
    ] = 2
    resources: Annotated[Object, describe("resources of the container")] = resources("100m", "192Mi", limit="512Mi")
    failure_policy: Annotated[
        Literal["Fail", "Ignore"],
        describe(
            "failurePolicy for opted-in pods and workloads while the webhook is down; with Ignore they run over TCP"
        ),
    ] = "Fail"
    timeout_seconds: Annotated[Seconds, describe("how long the API server waits for the webhook")] = 5
    excluded_namespaces: Annotated[
        list[Word], describe("namespaces to exclude besides kube-system and railwright-system")
    ] = []


class Extender(Pod, frozen=True, kw_only=True):
    """The scheduler extender."""

    enabled: Annotated[bool, describe("false installs admission only")] = True
    replicas: Annotated[Replicas, describe("number of replicas; one is the leader, the others are on standby")] = 2
    resources: Annotated[Object, describe("resources of the container")] = resources("100m", "256Mi", limit="1Gi")
    plain_http: Annotated[bool, describe("serve without TLS, for a Volcano without SSL_CERT_FILE")] = False


class Certificates(Pod, frozen=True, kw_only=True):
    """The source of the certificates, and settings of the rotator's pods."""

    mode: Annotated[
        Literal["rotator", "cert-manager", "existing"],
        describe("source of Secrets and caBundle: railwright-certs, cert-manager, or your own process"),
    ] = "rotator"
    ca_bundle: Annotated[
        str, describe("CA bundle in PEM, in mode existing only; empty if you write caBundle yourself")
    ] = ""
    client_auth: Annotated[bool, describe("require a client certificate from API servers; configure them first")] = (
        False
    )
    replicas: Annotated[Replicas, describe("replicas of the rotator; one is the leader")] = 2
    resources: Annotated[Object, describe("resources of the rotator's container")] = resources(
        "10m", "128Mi", limit="256Mi"
    )


class Policy(Values, frozen=True, kw_only=True):
    """The ConfigMap railwright-policy."""

    document: Annotated[
        str,
        describe("text of the policy, restored by each upgrade; empty: you manage the ConfigMap, not the chart"),
    ] = ""


class AdmissionPolicy(Values, frozen=True, kw_only=True):
    """The API server's own check for opted-in pods that were not injected."""

    mode: Annotated[Literal["Deny", "Warn", "Off"], describe("action for such a pod; Off disables the check")] = "Deny"
    accelerators: Annotated[
        list[Word],
        describe("accelerators of the policy, for pods that opted in by their namespace"),
        msgspec.Meta(min_length=1),
    ] = msgspec.field(default_factory=lambda: ["nvidia.com/gpu"])


class NetworkPolicy(Values, frozen=True, kw_only=True):
    """NetworkPolicies that allow the required traffic only."""

    enabled: Annotated[bool, describe("create NetworkPolicies")] = True
    metrics_namespace: Annotated[str, describe("namespace of Prometheus")] = "monitoring"


class Metrics(Values, frozen=True, kw_only=True):
    """Objects for the Prometheus operator and Grafana's sidecar."""

    service_monitor: Annotated[bool, describe("create ServiceMonitors; needs the CRDs of monitoring.coreos.com")] = (
        False
    )
    prometheus_rule: Annotated[bool, describe("create alerts; needs the same CRDs")] = False
    dashboards: Annotated[bool, describe("create a ConfigMap with the label grafana_dashboard")] = False


class Tracing(Values, frozen=True, kw_only=True):
    """OpenTelemetry traces; requires an image with the extra `tracing`."""

    endpoint: Annotated[
        str, describe("OTLP over HTTP, such as http://otel-collector.monitoring:4318; empty disables tracing")
    ] = ""
    namespace: Annotated[str, describe("namespace of the collector, for the NetworkPolicy")] = "monitoring"
    port: Annotated[int, describe("port of the collector, for the NetworkPolicy"), msgspec.Meta(ge=1, le=65535)] = 4318


class Chart(Values, frozen=True, kw_only=True):
    """All values of the chart."""

    image: Annotated[Image, describe("the image of all components")] = Image()
    webhook: Annotated[Webhook, describe("the admission webhook")] = Webhook()
    extender: Annotated[Extender, describe("the scheduler extender")] = Extender()
    certificates: Annotated[Certificates, describe("source of the certificates")] = Certificates()
    policy: Annotated[Policy, describe("the ConfigMap railwright-policy")] = Policy()
    admission_policy: Annotated[
        AdmissionPolicy, describe("the API server's own check for opted-in pods without injection")
    ] = AdmissionPolicy()
    network_policy: Annotated[NetworkPolicy, describe("allow the required traffic only")] = NetworkPolicy()
    metrics: Annotated[Metrics, describe("objects for the Prometheus operator and Grafana's sidecar")] = Metrics()
    tracing: Annotated[Tracing, describe("OpenTelemetry traces; requires an image with the extra `tracing`")] = (
        Tracing()
    )
    quota: Annotated[
        bool, describe("create a ResourceQuota that allows critical pods outside kube-system, as GKE requires")
    ] = True
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
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        text = msgspec.json.schema(field.type).get("description", "")
        path = (*above, field.encode_name)
        table = isinstance(default, msgspec.Struct)
        result.append(Row(path, default, text, table))
        if table:
            result += rows(type(default), path)
    return result


def schema() -> Object:
    """Return the JSON Schema of the values; it rejects unknown keys."""
    schema_tree = msgspec.json.schema(Chart)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema_tree}
