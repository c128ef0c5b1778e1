"""Objects that the checks read from a cluster, by source, and the reason for each source that could not be read.

Defines the sources (path, type, required permission) and lookups for the rows. Makes no calls: see `reader`.
"""

import datetime as dt
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from certs import installation, inventory
from railwright.cluster import failures, installed_names, policies
from railwright.fabric import hypernodes, label_selectors, names, node_views, views
from railwright.fabric.claims import objects
from railwright.fabric.policy import model as documents
from railwright.fabric.workloads import frameworks, registry

_INGRESS = "Ingress"
_EVERYONE = ("0.0.0.0/0", "::/0")


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[views.Requirement] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        return label_selectors.matches(self.match_labels or {}, self.match_expressions or (), labels)

    def describe(self) -> str:
        """Return the selector as kubectl's -l has it; "" if it selects everything."""
        equal = [f"{key}={value}" for key, value in (self.match_labels or {}).items()]
        others = [
            f"{expression.key} {expression.operator} ({','.join(expression.values or ())})"
            for expression in self.match_expressions or ()
        ]
        return ",".join([*equal, *others])


class _Addresses(msgspec.Struct):
    cidr: str = ""


class _Peer(msgspec.Struct, rename="camel"):
    pod_selector: _Selector | None = None
    namespace_selector: _Selector | None = None
    ip_block: _Addresses | None = None

    def describe(self, namespace: str) -> str:
        """Return who may connect; "" for everyone."""
        if self.ip_block is not None:
            return "" if self.ip_block.cidr in _EVERYONE else self.ip_block.cidr
        pods = self.pod_selector.describe() if self.pod_selector else ""
        if self.namespace_selector is None:
            return f"pods {pods or 'of any label'} of namespace {namespace}"
        namespaces = self.namespace_selector.describe()
        if not pods and not namespaces:
            return "pods of all namespaces"
        return f"pods {pods or 'of any label'} of namespaces {namespaces or 'of any label'}"


class _Port(msgspec.Struct, rename="camel"):
    port: int | str | None = None
    end_port: int | None = None
    protocol: str = "TCP"

    def includes(self, number: int, name: str) -> bool:
        """Return whether the rule is for this port of a container."""
        if self.protocol != "TCP":
            return False
        if isinstance(self.port, int):
            return self.port <= number <= (self.end_port or self.port)
        return self.port is None or self.port == name


class _Rule(msgspec.Struct):
    ports: list[_Port] | None = None
    peers: list[_Peer] | None = msgspec.field(default=None, name="from")


class _Spec(msgspec.Struct, rename="camel"):
    pod_selector: _Selector = msgspec.field(default_factory=_Selector)
    policy_types: list[str] | None = None
    ingress: list[_Rule] | None = None


class NetworkPolicy(msgspec.Struct):
    """The fields of a NetworkPolicy that say who may connect to a pod."""

    spec: _Spec = msgspec.field(default_factory=_Spec)

    def closes(self, labels: Mapping[str, str]) -> bool:
        """Return whether pods with these labels get only connections that a policy allows."""
        return self.spec.pod_selector.matches(labels) and _INGRESS in (self.spec.policy_types or (_INGRESS,))


def list_peers(
    policies: Iterable[NetworkPolicy], namespace: str, labels: Mapping[str, str], number: int, name: str
) -> Sequence[str]:
    """Return who may connect to this port of pods of `namespace` with these labels; () for everyone."""
    closing = [policy for policy in policies if policy.closes(labels)]
    peers: list[str] = []
    for rule in (rule for policy in closing for rule in policy.spec.ingress or ()):
        if rule.ports and not any(port.includes(number, name) for port in rule.ports):
            continue
        described = [peer.describe(namespace) for peer in rule.peers or ()]
        if not described or not all(described):
            return ()
        peers += described
    return tuple(dict.fromkeys(peers)) or (("nobody",) if closing else ())


# --- sources ------------------------------------------------------------------------------------------------


WEBHOOK, EXTENDER, CERTS = installed_names.WEBHOOK, installed_names.EXTENDER, installed_names.CERTS
CONFIGURATION, POLICY = installation.CONFIGURATION, installed_names.POLICY
SECRETS = {f"{installed_names.INSTALLATION}-{server}": inventory.SECRETS[server] for server in inventory.SERVERS}
VOLCANO_NAMESPACE, VOLCANO_CONFIGMAP = "volcano-system", "volcano-scheduler-configmap"  # as in Volcano's Helm chart
VOLCANO_SCHEDULER = "volcano-scheduler"  # Deployment of the same chart
# Sources that follow from others, with what `get_all` returns of them
DRY_RUNS = "dry-runs"  # a DryRun for each fabric
NAMESPACED_PODS = "namespaced-pods"  # pods of opted-in namespaces
PERMISSIONS = "permissions"  # to install: pairs of a Permission and whether the caller has it, None if unknown
SERVER_PERMISSIONS = "server-permissions"  # pairs of a ServiceAccount of a server and the Permissions that it lacks
CLUSTER = "cluster"  # the nodes and devices as placement sees them
DISABLED = "disabled"  # the copy of `railwright disable`
FABRIC_POLICY = "fabric-policy"  # read with the source "policy", the ConfigMap: if it exists, it is in force
_CLOCK_SKEW = dt.timedelta(seconds=10)  # between the clock of a Lease's holder and ours
_LEASE_SECONDS = 15  # lease duration if the object has none (client-go's default)


class Source(msgspec.Struct, frozen=True):
    """Objects to read: all of a kind, those of `namespace`, or the one with the name `obj`.

    {namespace} in it is railwright's namespace. Status 404 means that no object exists.
    """

    name: str
    api_version: str  # "" for /version, which every API server has
    plural: str
    namespace: str = ""
    obj: str = ""
    view: Any = Any  # type of the decoded objects
    query: Mapping[str, str] = {}

    @property
    def single(self) -> bool:
        """True for an object, False for a list."""
        return bool(self.obj) or not self.api_version

    @property
    def path(self) -> str:
        """The path in the API."""
        if not self.api_version:
            return f"/{self.plural}"
        prefix = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        scope = f"namespaces/{self.namespace}" if self.namespace else ""
        return "/".join(filter(None, (prefix, scope, self.plural, self.obj)))

    @property
    def right(self) -> str:
        """The permission to read it, as for `kubectl auth can-i`."""
        if not self.api_version:
            return f"get {self.path}"
        group = self.api_version.rpartition("/")[0]
        verb = "get" if self.single else "list"
        return str(failures.Permission(verb, group, self.plural, name=self.obj, namespace=self.namespace))


_OWN, _ADMISSION = "{namespace}", "admissionregistration.k8s.io/v1"
_OURS: Mapping[str, str] = {"labelSelector": "app.kubernetes.io/part-of=railwright"}
_WORKLOADS = [
    (
        kind,
        Source(
            f"{kind.plural}.{kind.version}.{kind.group}",
            f"{kind.group}/{kind.version}".lstrip("/"),
            kind.plural,
            view=msgspec.Raw,
        ),
    )
    for kind in registry.KINDS
]
WORKLOADS: Mapping[str, frameworks.WorkloadKind] = {source.name: kind for kind, source in _WORKLOADS}
SOURCES: tuple[Source, ...] = (
    Source("version", "", "version"),
    Source("namespaces", "v1", "namespaces"),
    Source("nodes", "v1", "nodes", view=node_views.Node),
    Source("deployments", "apps/v1", "deployments", _OWN),
    Source("own-pods", "v1", "pods", _OWN, query=_OURS),
    Source("budgets", "policy/v1", "poddisruptionbudgets", _OWN),
    Source("services", "v1", "services", _OWN),
    Source("slices", "discovery.k8s.io/v1", "endpointslices", _OWN),
    Source("network-policies", "networking.k8s.io/v1", "networkpolicies", _OWN, view=NetworkPolicy),
    Source("leases", "coordination.k8s.io/v1", "leases", _OWN),
    *(Source(f"{server}-secret", "v1", "secrets", _OWN, secret) for server, secret in SECRETS.items()),
    Source("mutating", _ADMISSION, "mutatingwebhookconfigurations"),
    Source("validating", _ADMISSION, "validatingwebhookconfigurations"),
    Source("admission-policies", _ADMISSION, "validatingadmissionpolicies"),
    Source("admission-bindings", _ADMISSION, "validatingadmissionpolicybindings"),
    Source("policy", "v1", "configmaps", _OWN, POLICY),
    Source(DISABLED, "v1", "configmaps", _OWN, installed_names.DISABLED),
    Source(FABRIC_POLICY, names.POLICY_API_VERSION, names.POLICY_PLURAL, _OWN, POLICY),
    Source("networks", "k8s.cni.cncf.io/v1", "network-attachment-definitions"),
    Source("hypernodes", "topology.volcano.sh/v1alpha1", "hypernodes", view=hypernodes.HyperNode),
    Source(
        "topologies", "topology.node.k8s.io/v1alpha2", "noderesourcetopologies", view=node_views.NodeResourceTopology
    ),
    Source("device-classes", "resource.k8s.io/v1", "deviceclasses", view=objects.DeviceClass),
    Source("device-slices", "resource.k8s.io/v1", "resourceslices", view=objects.ResourceSlice),
    Source("pods", "v1", "pods", view=views.Pod, query={"labelSelector": names.FABRIC}),
    Source("refusals", "v1", "events", view=views.Event, query={"fieldSelector": "reason=FabricRefused"}),
    Source("volcano", "v1", "configmaps", VOLCANO_NAMESPACE, VOLCANO_CONFIGMAP),
    Source("volcano-deployment", "apps/v1", "deployments", VOLCANO_NAMESPACE, VOLCANO_SCHEDULER),
    Source("kube-system", "v1", "configmaps", "kube-system"),
    Source("queues", "scheduling.volcano.sh/v1beta1", "queues"),
    *(source for _, source in _WORKLOADS),
)


class DryRun(msgspec.Struct, frozen=True):
    """A dry run of creating a pod, and its result: the pod after admission, or the API server's error."""

    fabric: str
    namespace: str = ""
    problem: str = ""  # why it cannot be made
    privileged: bool = False  # the fabric makes containers privileged
    accelerators: int = 1
    pod: Any = None
    refusal: str = ""
    forbidden: bool = False  # the caller lacks permission to create pods there


class Snapshot(msgspec.Struct, frozen=True):
    """Snapshot of a cluster. `now` is the caller's clock. `unread` maps each unreadable source to the reason."""

    namespace: str
    now: dt.datetime
    server: str = ""
    objects: Mapping[str, tuple[Any, ...]] = {}
    unread: Mapping[str, str] = {}
    forbidden: tuple[str, ...] = ()  # permissions to read that the caller lacks
    unknown: frozenset[str] = frozenset()  # sources whose kind the API server does not serve

    def get_all(self, source: str) -> tuple[Any, ...]:
        """Return the objects of a source, () if it could not be read."""
        return self.objects.get(source, ())

    def get_one(self, source: str) -> Any | None:
        """Return the object of a single-object source, None if it does not exist."""
        return next(iter(self.get_all(source)), None)

    def find(self, source: str, name: str) -> Any | None:
        """Return the object with this name, None if it does not exist."""
        return next((item for item in self.get_all(source) if get_path(item, "metadata", "name") == name), None)

    @property
    def policy(self) -> documents.FabricPolicy | None:
        """Return the policy, None if it is missing or invalid."""
        result = self.policy_result
        return result.document if isinstance(result, documents.Policy) else None

    @property
    def fabrics(self) -> Mapping[str, documents.Fabric]:
        """Return the fabrics of the policy, none if it is missing or invalid."""
        return self.policy.fabrics if self.policy else {}

    @property
    def policy_result(self) -> documents.Policy | policies.Rejected | None:
        """Return the policy of the object in force, or its errors; None if it is missing."""
        if self.fabric_policy is not None:
            spec = get_map(self.fabric_policy, "spec")
            return policies.locate_in_spec(_read_policy(policies.write_spec(spec)))
        return None if self.policy_text is None else _read_policy(self.policy_text)

    @property
    def policy_text(self) -> str | None:
        """Return the policy text in the ConfigMap, None if it is missing."""
        text = get_path(self.get_one("policy"), "data", names.POLICY_KEY)
        return text if isinstance(text, str) else None

    @property
    def fabric_policy(self) -> Any | None:
        """Return the FabricPolicy, which is in force if it exists; None otherwise."""
        return self.get_one(FABRIC_POLICY)

    @property
    def is_disabled(self) -> bool:
        """True while there is a copy of `railwright disable`, which `railwright enable` deletes."""
        return self.get_one(DISABLED) is not None

    @property
    def policy_name(self) -> str:
        """Return kind and name of the object in force."""
        return f"{'ConfigMap' if self.fabric_policy is None else names.POLICY_KIND} {POLICY}"

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of each namespace by its name."""
        return {get_name(item): get_map(item, "metadata", "labels") for item in self.get_all("namespaces")}

    @property
    def hooks(self) -> tuple[Mapping[str, Any], ...]:
        """Return the entries of railwright's mutating and validating webhook configurations."""
        configurations = (self.find(source, CONFIGURATION) for source in ("mutating", "validating"))
        return tuple(hook for item in configurations if item is not None for hook in get_path(item, "webhooks") or ())


@functools.lru_cache(maxsize=8)
def _read_policy(text: str) -> documents.Policy | policies.Rejected:
    """Parse a policy. Cached, because several rows need it."""
    return policies.read(text)


def get_path(tree: Any, *path: str) -> Any:
    """Return the value under these keys, None if a key is missing or a value on the path is not a mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


get_map = frameworks.get_mapping


def get_list(tree: Any, *path: str) -> Sequence[Any]:
    """Return the list under these keys, an empty one if there is none."""
    return get_path(tree, *path) or ()


def get_name(obj: Any) -> str:
    """Return NAMESPACE/NAME, or NAME for an object without namespace."""
    metadata = get_path(obj, "metadata")
    return "/".join(filter(None, (get_path(metadata, "namespace"), get_path(metadata, "name"))))


_TAG = re.compile(r":v?(\d+\.\d+\.\d+[^@]*)(@.*)?$")


def list_containers(deployment: Any) -> Sequence[Any]:
    """Return the containers of a Deployment."""
    return get_list(deployment, "spec", "template", "spec", "containers")


def list_images(deployment: Any) -> list[str]:
    """Return the images of all containers of a Deployment."""
    return [str(get_path(container, "image") or "") for container in list_containers(deployment)]


def get_image_version(image: str) -> str:
    """Return the version in an image's tag, "" if the tag names none, such as `latest`."""
    match = _TAG.search(image)
    return match[1] if match else ""


def read_options(deployment: Any) -> Mapping[str, str]:
    """Return the options of all containers of a Deployment; the value of one without is ""."""
    arguments = [argument for container in list_containers(deployment) for argument in get_list(container, "args")]
    return dict(argument.partition("=")[::2] for argument in arguments)


def list_accelerators(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the resource names that identify a training container: the policy's `accelerators`, or its default."""
    return snapshot.policy.accelerators if snapshot.policy else ("nvidia.com/gpu",)  # the default of `accelerators`


def get_lease_holder(lease: Any) -> str:
    """Return the holder's identity, "" if the Lease has no holder."""
    return str(get_path(lease, "spec", "holderIdentity") or "")


def find_lease_problem(lease: Any, now: dt.datetime) -> str:
    """Return why the Lease is not held, as a predicate to follow its name; "" while it is held."""
    if lease is None:
        return "does not exist"
    if not (identity := get_lease_holder(lease)):
        return "has no holder"
    renew_time = parse_time(get_path(lease, "spec", "renewTime"))
    seconds = get_path(lease, "spec", "leaseDurationSeconds") or _LEASE_SECONDS
    if now - renew_time > dt.timedelta(seconds=seconds) + _CLOCK_SKEW:
        return f"has expired: {identity} last renewed it at {renew_time:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def parse_time(timestamp: Any) -> dt.datetime:
    """Return a time of an object, 1970 if it has none."""
    try:
        return dt.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return dt.datetime.fromtimestamp(0, dt.UTC)


_MANAGED_BY = "app.kubernetes.io/managed-by"
_RELEASE = "meta.helm.sh/release-name"  # annotation that Helm writes on its objects
# Labels and annotations that GitOps tools write on what they deploy, with the kind whose name is their value. Argo CD's
# tracking-id is APPLICATION:GROUP/KIND:NAMESPACE/NAME. (Its docs: resource tracking; Flux's: spec.commonMetadata.)
_DEPLOYERS: Mapping[str, tuple[str, str]] = {
    "argocd.argoproj.io/tracking-id": ("Argo CD", "Application"),
    "argocd.argoproj.io/instance": ("Argo CD", "Application"),
    "helm.toolkit.fluxcd.io/name": ("Flux", "HelmRelease"),
    "kustomize.toolkit.fluxcd.io/name": ("Flux", "Kustomization"),
}


def format_apply_command(snapshot: Snapshot, setting: str = "") -> str:
    """Return how to apply the installation again: by the repository of a GitOps tool, by Helm, or by kubectl.

    `setting` (KEY=VALUE) is a value of the chart that the release must have: Helm keeps another one that was set.
    """
    for name in (WEBHOOK, EXTENDER, CERTS):
        metadata = get_path(snapshot.find("deployments", name), "metadata")
        labels, annotations = get_map(metadata, "labels"), get_map(metadata, "annotations")
        for key, (tool, kind) in _DEPLOYERS.items():
            if value := {**labels, **annotations}.get(key):
                return f"change it in the repository that {tool} ({kind} {value.partition(':')[0]}) deploys"
        if labels.get(_MANAGED_BY) == "Helm":
            release = annotations.get(_RELEASE, "railwright")
            value = f" --set {setting}" if setting else ""
            return f"helm upgrade {release} CHART -n {snapshot.namespace} --reset-then-reuse-values{value}"
    return "kubectl apply -k FOLDER (with your kustomization.yaml)"


def format_edit_command(snapshot: Snapshot) -> str:
    """Return how to edit the policy in force."""
    return f"kubectl -n {snapshot.namespace} edit {snapshot.policy_name.lower()}"
