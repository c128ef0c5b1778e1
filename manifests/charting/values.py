"""The values of the Helm chart: every key with its meaning, default and form. The one source of the chart's
values.yaml, its schema and the tables of its pages; `build.py` writes those.

Refuses to know what a template makes of a value.
"""

from typing import Annotated, Any, Literal

import msgspec

Object = dict[str, Any]
Word = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?$")]  # it goes into an expression
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32)]  # the ResourceQuota of the namespace
Seconds = Annotated[int, msgspec.Meta(ge=1, le=30)]  # the API server's own bounds


def says(text: str) -> msgspec.Meta:
    """What a key means, as the operator reads it."""
    return msgspec.Meta(description=text)


def resources(cpu: str, memory: str, *, limit: str) -> Object:
    """The default of a container's resources. No limit of CPU: it would slow the server down while cores idle."""
    made: Object = msgspec.field(
        default_factory=lambda: {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}
    )
    return made


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all tables of values share: spelled as Kubernetes does, and a key that nobody reads is refused."""


class Image(Values, frozen=True, kw_only=True):
    """One image has all components."""

    repository: Annotated[str, says("registry and name")] = "railwright"
    tag: Annotated[str, says("empty: the chart's appVersion")] = ""
    digest: Annotated[str, says("sha256:...; beats the tag"), msgspec.Meta(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    pull_policy: Annotated[
        Literal["", "Always", "IfNotPresent", "Never"], says("empty: Kubernetes' choice for the tag")
    ] = ""
    pull_secrets: Annotated[list[Object], says("such as [{name: registry}]")] = []


class Pod(Values, frozen=True, kw_only=True):
    """What every component's pods may be told."""

    priority_class_name: Annotated[str, says("whose pods make room for these")] = "system-cluster-critical"
    node_selector: Annotated[Object, says("labels of the nodes they may run on")] = {}
    tolerations: Annotated[list[Object], says("taints they bear")] = []
    affinity: Annotated[
        Object, says("replaces the shipped preference for separate nodes; the spread constraint stays")
    ] = {}
    extra_args: Annotated[list[str], says("further options; `--help` of the command lists them")] = []


class Webhook(Pod, frozen=True, kw_only=True):
    """The admission webhook."""

    replicas: Annotated[
        Replicas, says("two or more; with one, nobody answers while it restarts or its node is drained")
    ] = 2
    resources: Annotated[Object, says("of the container")] = resources("100m", "192Mi", limit="512Mi")
    failure_policy: Annotated[
        Literal["Fail", "Ignore"],
        says("what becomes of opted-in pods and workloads while nobody answers; Ignore: they run over TCP"),
    ] = "Fail"
    timeout_seconds: Annotated[Seconds, says("how long the API server waits for them")] = 5
    excluded_namespaces: Annotated[list[Word], says("never looked at, beside kube-system and railwright-system")] = []


class Extender(Pod, frozen=True, kw_only=True):
    """The scheduler extender."""

    enabled: Annotated[bool, says("false: admission only")] = True
    replicas: Annotated[Replicas, says("one answers, the others stand by")] = 2
    resources: Annotated[Object, says("of the container")] = resources("100m", "256Mi", limit="1Gi")
    plain_http: Annotated[bool, says("without TLS, for a Volcano that has no SSL_CERT_FILE")] = False


class Certificates(Pod, frozen=True, kw_only=True):
    """Where certificates come from; the rest is the rotator's pods."""

    mode: Annotated[
        Literal["rotator", "cert-manager", "existing"],
        says("who writes Secrets and caBundle: railwright-certs, cert-manager, or you"),
    ] = "rotator"
    ca_bundle: Annotated[str, says("PEM; in mode existing only. Empty: you write caBundle yourself")] = ""
    client_auth: Annotated[
        bool, says("the webhook answers API servers with a certificate only; prepare those first")
    ] = False
    replicas: Annotated[Replicas, says("of the rotator; one rotates")] = 2
    resources: Annotated[Object, says("of the rotator's container")] = resources("10m", "128Mi", limit="256Mi")


class Policy(Values, frozen=True, kw_only=True):
    """The ConfigMap railwright-policy."""

    document: Annotated[
        str,
        says("the policy as text, which each upgrade puts back. Empty: you bring the ConfigMap, never touched here"),
    ] = ""


class AdmissionPolicy(Values, frozen=True, kw_only=True):
    """The API server's own look at pods that opted in and were not injected."""

    mode: Annotated[Literal["Deny", "Warn", "Off"], says("what becomes of such a pod; Off: nobody looks")] = "Deny"
    accelerators: Annotated[
        list[Word], says("as in the policy; of pods that opted in by their namespace"), msgspec.Meta(min_length=1)
    ] = msgspec.field(default_factory=lambda: ["nvidia.com/gpu"])


class NetworkPolicy(Values, frozen=True, kw_only=True):
    """Closed but for what is served and needed."""

    enabled: Annotated[bool, says("make NetworkPolicies")] = True
    metrics_namespace: Annotated[str, says("where Prometheus is")] = "monitoring"


class Metrics(Values, frozen=True, kw_only=True):
    """For the Prometheus operator and Grafana's sidecar."""

    service_monitor: Annotated[bool, says("needs the CRDs of monitoring.coreos.com")] = False
    prometheus_rule: Annotated[bool, says("alerts; needs the same CRDs")] = False
    dashboards: Annotated[bool, says("a ConfigMap with the label grafana_dashboard")] = False


class Tracing(Values, frozen=True, kw_only=True):
    """OpenTelemetry; needs an image with the extra `tracing`."""

    endpoint: Annotated[str, says("OTLP over HTTP, such as http://otel-collector.monitoring:4318; empty: off")] = ""
    namespace: Annotated[str, says("where the collector is, for the NetworkPolicy")] = "monitoring"
    port: Annotated[int, says("of the collector, for the NetworkPolicy"), msgspec.Meta(ge=1, le=65535)] = 4318


class Chart(Values, frozen=True, kw_only=True):
    """All of it."""

    image: Annotated[Image, says("the image of all components")] = Image()
    webhook: Annotated[Webhook, says("the admission webhook")] = Webhook()
    extender: Annotated[Extender, says("the scheduler extender")] = Extender()
    certificates: Annotated[Certificates, says("where certificates come from")] = Certificates()
    policy: Annotated[Policy, says("the ConfigMap railwright-policy")] = Policy()
    admission_policy: Annotated[AdmissionPolicy, says("the API server's own check of the final pod")] = (
        AdmissionPolicy()
    )
    network_policy: Annotated[NetworkPolicy, says("closed but for what is served and needed")] = NetworkPolicy()
    metrics: Annotated[Metrics, says("for the Prometheus operator and Grafana's sidecar")] = Metrics()
    tracing: Annotated[Tracing, says("OpenTelemetry; needs an image with the extra `tracing`")] = Tracing()
    quota: Annotated[bool, says("a ResourceQuota that lets critical pods run outside kube-system, as GKE asks")] = True
    global_: Annotated[Object, says("Helm's own, where this is part of another chart")] = msgspec.field(
        name="global", default_factory=dict
    )


class Row(msgspec.Struct, frozen=True):
    """One key of the values: its path, default and meaning."""

    path: tuple[str, ...]
    default: Any
    text: str
    table: bool  # of further keys


def rows(of: type[msgspec.Struct] = Chart, above: tuple[str, ...] = ()) -> list[Row]:
    """Every key in the order of the file; a table comes before its keys."""
    found = []
    for field in msgspec.structs.fields(of):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        text = msgspec.json.schema(field.type).get("description", "")
        path = (*above, field.encode_name)
        table = isinstance(default, msgspec.Struct)
        found.append(Row(path, default, text, table))
        if table:
            found += rows(type(default), path)
    return found


def schema() -> Object:
    """JSON Schema of the values; keys that are not in it are refused."""
    made = msgspec.json.schema(Chart)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
