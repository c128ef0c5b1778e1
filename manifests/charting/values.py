"""The values of the Helm chart: every key with its meaning, default and type.

`build.py` generates the chart's values.yaml, its schema and the tables of its pages from this module.
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


class Image(Values, frozen=True, kw_only=True):
    """The image, which contains all components."""

    repository: Annotated[str, describe("Registry and name of the image")] = "railwright"
    tag: Annotated[str, describe("Tag of the image. Empty: the chart's appVersion")] = ""
    digest: Annotated[
        str,
        describe("Digest of the image, sha256:...; overrides the tag"),
        msgspec.Meta(pattern="^(sha256:[0-9a-f]{64})?$"),
    ] = ""
    pull_policy: Annotated[
        Literal["", "Always", "IfNotPresent", "Never"],
        describe("When nodes pull the image. Empty: Kubernetes decides by the tag"),
    ] = ""
    pull_secrets: Annotated[list[Object], describe("imagePullSecrets of the pods, such as [{name: registry}]")] = (
        default([])
    )


class Webhook(Pod, frozen=True, kw_only=True):
    """The admission webhook."""

    replicas: Annotated[
        Replicas, describe("Number of replicas; with one, admission stops while it restarts or its node is drained")
    ] = 2
    strategy: Annotated[Object, describe("Update strategy of the Deployment")] = default(
        {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    )
    resources: Annotated[Object, describe("Resources of the container")] = resources("100m", "192Mi", limit="512Mi")
    secure_port: Annotated[
        Port, describe("Port of the container that API servers reach; private GKE clusters allow 443 and 10250 only")
    ] = 9443
    service: Annotated[Service, describe("Service that API servers call")] = Service()
    failure_policy: Annotated[
        Literal["Fail", "Ignore"],
        describe(
            "What happens to opted-in pods and workloads while the webhook is down: Fail rejects them, Ignore runs them"
            " over TCP"
        ),
    ] = "Fail"
    timeout_seconds: Annotated[Seconds, describe("How long the API server waits for the webhook")] = 5
    excluded_namespaces: Annotated[
        list[Word], describe("Namespaces to exclude, besides kube-system and that of the release")
    ] = default([])


class Dashboard(Values, frozen=True, kw_only=True):
    """The extender's dashboard."""

    enabled: Annotated[
        bool, describe("Serve the dashboard. Readers need the ClusterRole for it (docs/dashboard.md)")
    ] = False
    port: Annotated[Port, describe("Port of the container")] = 8714
    service_port: Annotated[Port, describe("Port of the extender's Service")] = 8714
    allow_from: Annotated[
        list[Object], describe("Peers that the NetworkPolicy lets reach the dashboard, such as an ingress. Empty: all")
    ] = default([])


class Volcano(Values, frozen=True, kw_only=True):
    """A port for Volcano, which cannot present a client certificate."""

    enabled: Annotated[
        bool,
        describe("Serve Volcano on a port of its own, 8715 of the Service, without client certificates"),
    ] = False
    port: Annotated[Port, describe("Port of the container")] = 8715
    allow_from: Annotated[
        list[Object],
        describe("Peers that the NetworkPolicy lets reach Volcano's port. Empty: all"),
    ] = default(
        [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "volcano-system"}},
                "podSelector": {"matchLabels": {"app": "volcano-scheduler"}},
            }
        ]
    )


class Extender(Pod, frozen=True, kw_only=True):
    """The scheduler extender."""

    enabled: Annotated[bool, describe("Install the extender; false installs admission only")] = True
    replicas: Annotated[Replicas, describe("Number of replicas; one is the leader, the others are on standby")] = 2
    strategy: Annotated[Object, describe("Update strategy of the Deployment")] = default(
        {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    )
    resources: Annotated[Object, describe("Resources of the container")] = resources("100m", "256Mi", limit="1Gi")
    port: Annotated[Port, describe("Port of the container that schedulers reach; the Service has 8713")] = 8713
    service: Annotated[Service, describe("Service that schedulers call")] = Service()
    plain_http: Annotated[bool, describe("Serve without TLS, for a Volcano without SSL_CERT_FILE")] = False
    client_auth: Annotated[
        bool,
        describe("Require kube-scheduler's client certificate; configure it first, and for Volcano extender.volcano"),
    ] = False
    allow_from: Annotated[
        list[Object],
        describe("Peers that the NetworkPolicy lets reach the extender, such as the control plane's hosts. Empty: all"),
    ] = default([])
    volcano: Annotated[Volcano, describe("Port for Volcano, which cannot present a client certificate")] = Volcano()
    dashboard: Annotated[Dashboard, describe("Dashboard of gangs and rails")] = Dashboard()


class Certificates(Pod, frozen=True, kw_only=True):
    """The source of the certificates, and settings of the rotator's pods."""

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
    replicas: Annotated[Replicas, describe("Number of replicas of the rotator; one is the leader")] = 2
    strategy: Annotated[Object, describe("Update strategy of the rotator's Deployment")] = default(
        {"rollingUpdate": {"maxUnavailable": 1}}
    )
    readiness_probe: Annotated[Object, describe("Readiness probe of the container")] = probe("/readyz", periodSeconds=5)
    resources: Annotated[Object, describe("Resources of the rotator's container")] = resources(
        "10m", "128Mi", limit="256Mi"
    )


class Policy(Values, frozen=True, kw_only=True):
    """The ConfigMap with the policy."""

    document: Annotated[
        str,
        describe("Text of the policy, restored by each upgrade. Empty: you manage the ConfigMap, not the chart"),
    ] = ""


class AdmissionPolicy(Values, frozen=True, kw_only=True):
    """The API server's own check for opted-in pods that were not injected."""

    mode: Annotated[Literal["Deny", "Warn", "Off"], describe("What happens to such a pod; Off disables the check")] = (
        "Deny"
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


class MonitoringObject(Values, frozen=True, kw_only=True):
    """An object for a monitoring operator, which selects it by labels."""

    enabled: Annotated[bool, describe("Create the object")] = False
    namespace: Annotated[str, describe("Namespace of the object. Empty: that of the release")] = ""
    annotations: Annotated[Strings, describe("Annotations of the object")] = default({})


class ServiceMonitor(MonitoringObject, frozen=True, kw_only=True):
    """ServiceMonitor of all servers."""

    labels: Annotated[
        Strings, describe("Additional labels, such as release: kube-prometheus-stack, by which Prometheus selects it")
    ] = default({})
    interval: Annotated[Duration, describe("Time between scrapes")] = "15s"
    scrape_timeout: Annotated[Duration, describe("Timeout of a scrape. Empty: Prometheus's default")] = ""
    honor_labels: Annotated[bool, describe("Keep labels of the metrics that clash with those of the target")] = False


class PrometheusRule(MonitoringObject, frozen=True, kw_only=True):
    """The alerts."""

    labels: Annotated[
        Strings, describe("Additional labels, such as release: kube-prometheus-stack, by which Prometheus selects it")
    ] = default({})
    runbook_url: Annotated[
        str,
        describe("Address of your copy of docs/runbook.md; alerts link to their entry. Empty: alerts contain its text"),
    ] = ""
    gang_waiting_seconds: Annotated[
        int,
        describe("How long a gang may wait while railwright rejects nodes, until RailwrightGangWaitingLong fires"),
        msgspec.Meta(ge=60),
    ] = 3600


class Dashboards(MonitoringObject, frozen=True, kw_only=True):
    """ConfigMap with the Grafana dashboards."""

    labels: Annotated[Strings, describe("Labels by which Grafana's sidecar finds the ConfigMap")] = default(
        {"grafana_dashboard": "1"}
    )


class Metrics(Values, frozen=True, kw_only=True):
    """Objects for the Prometheus operator and Grafana's sidecar."""

    service_monitor: Annotated[ServiceMonitor, describe("ServiceMonitor; needs the CRDs of monitoring.coreos.com")] = (
        ServiceMonitor()
    )
    prometheus_rule: Annotated[PrometheusRule, describe("Alerts; need the same CRDs")] = PrometheusRule()
    dashboards: Annotated[Dashboards, describe("ConfigMap with the Grafana dashboards")] = Dashboards()


class Chart(Values, frozen=True, kw_only=True):
    """All values of the chart."""

    name_override: Annotated[Name, describe("Value of the label app.kubernetes.io/name. Empty: the chart's name")] = ""
    fullname_override: Annotated[
        Name, describe("First part of the name of every object. Empty: from the release's name")
    ] = ""
    common_labels: Annotated[Strings, describe("Additional labels of every object and pod")] = default({})
    cluster_domain: Annotated[Domain, describe("DNS domain of the cluster, for the servers' certificates")] = (
        "cluster.local"
    )
    image: Annotated[Image, describe("Image of all components")] = Image()
    webhook: Annotated[Webhook, describe("Admission webhook")] = Webhook()
    extender: Annotated[Extender, describe("Scheduler extender")] = Extender()
    certificates: Annotated[Certificates, describe("Source of the certificates, and pods of the rotator")] = (
        Certificates()
    )
    policy: Annotated[Policy, describe("ConfigMap with the policy")] = Policy()
    admission_policy: Annotated[
        AdmissionPolicy, describe("The API server's own check for opted-in pods without injection")
    ] = AdmissionPolicy()
    network_policy: Annotated[NetworkPolicy, describe("NetworkPolicies that allow the required traffic only")] = (
        NetworkPolicy()
    )
    metrics: Annotated[Metrics, describe("Objects for the Prometheus operator and Grafana's sidecar")] = Metrics()
    quota: Annotated[
        bool, describe("Create a ResourceQuota that allows critical pods outside kube-system, as GKE requires")
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
