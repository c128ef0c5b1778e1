"""Checks of scheduling: the extender, its Lease and callers, and scheduler configurations stored in ConfigMaps."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from railwright.cli.checking import installation, policy, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, State, fail, ok, require, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_name, get_path
from railwright.cluster import documents
from railwright.fabric import label_selectors, text
from railwright.fabric.gang_topology import requests
from railwright.fabric.injection import explanations

_EXTENDER_PORT, _VOLCANO_PORT = 8713, 8715  # of the extender's Service
_LISTEN, _VOLCANO_LISTEN, _CLIENT_CA = "--listen", "--volcano-listen", "--client-ca"
_VERBS = {  # arguments of Volcano's extender plugin and the extender's paths (docs/interface.md 4)
    "extender.prioritizeVerb": "prioritize",
    "extender.allocateFuncVerb": "allocate",
    "extender.deallocateFuncVerb": "deallocate",
    "extender.onSessionCloseVerb": "session-close",
}
_KUBE_SCHEDULER = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "nodeCacheCapable": True, "ignorable": True}
_HYPER_NODE_PLUGIN, _HYPER_NODE_RESOURCES = "network-topology-aware", "hypernode.binpack.resources"
_VOLCANO = f"ConfigMap {snapshots.VOLCANO_NAMESPACE}/{snapshots.VOLCANO_CONFIGMAP}"
_CLOSE = (
    "set extender.clientAuth of the chart for kube-scheduler, which can present a client certificate, and "
    "extender.volcano.enabled and networkPolicy.enabled for Volcano, which cannot"
)


class Configuration(NamedTuple):
    """The configuration of a scheduler in a ConfigMap, or why it is not valid YAML."""

    configmap: str
    tree: Any = None
    problem: str = ""


# --- the extender -----------------------------------------------------------------------------------------


def _check_lease(snapshot: Snapshot, deployment: Any) -> Assessment:
    lease = snapshot.find("leases", snapshots.EXTENDER)
    is_elected = any(option.startswith("--leader-elect") for option in snapshots.read_options(deployment))
    require(lease or is_elected, "the extender runs without --leader-elect, so it needs no Lease")
    if problem := snapshots.find_lease_problem(lease, snapshot.now):
        return fail(f"Lease {snapshots.EXTENDER} {problem}: no extender replica is active")
    return ok(f"held by {snapshots.get_lease_holder(lease)}")


def _check_callers(snapshot: Snapshot, deployment: Any) -> Assessment:
    """Say who may call each path: by client certificate, by NetworkPolicy, or whoever reaches the port.

    If some are open to everyone, the row has the fix; it warns if the options close others.
    """
    options = snapshots.read_options(deployment)
    listen = options.get(_LISTEN) or f":{_EXTENDER_PORT}"
    volcano_listen = options.get(_VOLCANO_LISTEN)
    sentences, is_open = [], False
    for path, address, is_certified in (
        ("/scheduler", listen, _CLIENT_CA in options),
        ("/volcano", volcano_listen or listen, _CLIENT_CA in options and not volcano_listen),
    ):
        number = int(address.rpartition(":")[2])
        peers = _list_peers(snapshot, deployment, number)
        callers = text.join_first(peers, 5) or "whoever reaches the port"
        if is_certified:
            callers = f"a client certificate of {options.get('--client-names') or 'anyone whom the CA has certified'}"
        elif not peers:
            is_open = True
        sentences.append(f"{path} on port {number}: {callers}")
    sentences.append("/explain: a token that may read the pod")
    if problem := snapshot.unread.get("network-policies"):
        sentences.append(f"NetworkPolicies are unknown, because {problem}")
    if not is_open:
        return ok("; ".join(sentences))
    is_requested = _CLIENT_CA in options or volcano_listen
    return (warn if is_requested else skip)(f"{'; '.join(sentences)}. To close what is open, {_CLOSE}")


def _list_peers(snapshot: Snapshot, deployment: Any, number: int) -> Sequence[str]:
    """Return who may connect to a port of a Deployment's pods by the NetworkPolicies; () for everyone."""
    ports = [port for container in snapshots.list_containers(deployment) for port in get_list(container, "ports")]
    name = next((port.get("name") for port in ports if port.get("containerPort") == number), None)
    labels = get_map(deployment, "spec", "template", "metadata", "labels")
    closing = [item for item in snapshot.get_all("network-policies") if _closes(item, labels)]
    peers: list[str] = []
    for rule in (rule for item in closing for rule in get_list(item, "spec", "ingress")):
        if not get_list(rule, "ports") or any(_includes(port, number, name) for port in get_list(rule, "ports")):
            described = [_describe_peer(peer, snapshot.namespace) for peer in get_list(rule, "from")]
            if not all(described) or not described:
                return ()
            peers += described
    return tuple(dict.fromkeys(peers)) or (("nobody",) if closing else ())


def _closes(network_policy: Any, labels: Mapping[str, str]) -> bool:
    """Return whether pods with these labels get only connections that a NetworkPolicy allows."""
    types = get_list(network_policy, "spec", "policyTypes") or ("Ingress",)
    selector = snapshots.read_selector(get_path(network_policy, "spec", "podSelector"))
    return "Ingress" in types and label_selectors.matches({}, selector, labels)


def _includes(port: Mapping[str, Any], number: int, name: str | None) -> bool:
    """True if the port of a rule is this port of a container."""
    first = port.get("port")
    is_in_range = isinstance(first, int) and first <= number <= (port.get("endPort") or first)
    return port.get("protocol", "TCP") == "TCP" and (first in (None, name) or is_in_range)


def _describe_peer(peer: Mapping[str, Any], namespace: str) -> str:
    """Return who may connect; "" for everyone."""
    if addresses := get_path(peer, "ipBlock", "cidr"):
        return "" if addresses in ("0.0.0.0/0", "::/0") else addresses
    pods, namespaces = (
        snapshots.format_selector(snapshots.read_selector(peer.get(key)))
        for key in ("podSelector", "namespaceSelector")
    )
    if peer.get("namespaceSelector") is None:
        return f"pods {pods or 'of any label'} of namespace {namespace}"
    if not pods and not namespaces:
        return "pods of all namespaces"
    return f"pods {pods or 'of any label'} of namespaces {namespaces or 'of any label'}"


# --- Volcano ----------------------------------------------------------------------------------------------


def _check_volcano(snapshot: Snapshot) -> Assessment:
    missing = f"{_VOLCANO} does not exist: Volcano is not installed, or is configured elsewhere"
    require(snapshot.get_one("volcano"), missing)
    deployment = installation.get_deployment(snapshot, snapshots.EXTENDER)
    configuration = read_volcano(snapshot)
    if configuration.problem:
        return fail(f"Volcano's configuration is not valid YAML: {configuration.problem}")
    plugins = list_volcano_plugins(configuration)
    order = [plugin.get("name") for plugin in plugins]
    if "extender" not in order:
        return warn("Volcano does not call railwright: its tiers have no plugin `extender`")
    arguments = get_map(plugins[order.index("extender")], "arguments")
    url = str(arguments.get("extender.urlPrefix", ""))
    problems = [
        *_find_url_problems(url, snapshots.read_options(deployment)),
        *_find_argument_problems(arguments),
        *_find_missing_resources(arguments.get("extender.managedResources"), snapshot),
    ]
    if "predicates" in order and order.index("extender") < order.index("predicates"):
        problems.append("plugin extender is listed before predicates: the extender is called for nodes that do not fit")
    return fail("; ".join(problems)) if problems else ok(url)


def read_volcano(snapshot: Snapshot) -> Configuration:
    """Return the configuration of Volcano's scheduler."""
    data = get_map(snapshot.get_one("volcano"), "data")
    return _parse(_VOLCANO, next((str(value) for key, value in data.items() if key.endswith(".conf")), ""))


def list_volcano_plugins(configuration: Configuration) -> list[Mapping[str, Any]]:
    """Return the plugins of Volcano's configuration in the order of its tiers."""
    tiers = _read_list(configuration.tree, "tiers")
    return [item for tier in tiers for item in _read_list(tier, "plugins") if isinstance(item, Mapping)]


def _parse(configmap: str, configuration: str) -> Configuration:
    try:
        return Configuration(configmap, yaml.load(configuration, Loader=documents.LOADER))  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        return Configuration(configmap, problem=" ".join(str(error).split()))


def _read_list(tree: Any, key: str) -> list[Any]:
    items = get_path(tree, key)
    return items if isinstance(items, list) else []


def _find_url_problems(url: str, options: Mapping[str, str]) -> Iterator[str]:
    if "/volcano" not in url:
        yield f"extender.urlPrefix is {url or 'missing'}; it must end in /volcano"
    if snapshots.EXTENDER not in url:
        return
    scheme = "http" if "--plain-http" in options else "https"
    if not url.startswith(f"{scheme}://"):
        yield f"extender.urlPrefix is {url}, but the extender serves {scheme}"
    if _VOLCANO_LISTEN in options and f":{_EXTENDER_PORT}/" in url:
        yield f"extender.urlPrefix is {url}, but Volcano has a port of its own: {_VOLCANO_PORT}"
    if _CLIENT_CA in options and _VOLCANO_LISTEN not in options:
        yield (
            "the extender requires a client certificate, which Volcano cannot present: set "
            "extender.volcano.enabled of the chart"
        )


def _find_argument_problems(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, verb in _VERBS.items():
        if arguments.get(key) != verb:
            yield f"{key} is {arguments.get(key)}, not {verb}"
    if arguments.get("extender.ignorable") is not True:
        yield "extender.ignorable is not true: while the extender is down, Volcano schedules no pods"
    if not isinstance(arguments.get("extender.httpTimeout"), str):
        yield "extender.httpTimeout is not a duration such as 5s"


def _find_missing_resources(managed: Any, snapshot: Snapshot) -> Iterator[str]:
    """Check managedResources. Volcano calls the extender only for pods that request one; without the list, for all."""
    if managed is None:
        return
    if not isinstance(managed, list):
        yield "extender.managedResources is not a list"
        return
    fabrics = [fabric for fabric in policy.list_fabrics(snapshot).values() if fabric.claims is None]
    pools = {rail.resource for fabric in fabrics for rail in fabric.rails if rail.resource}
    if missing := sorted(pools - set(map(str, managed))):
        lacking = f"extender.managedResources lacks {text.join_first(missing, 5)}"
        yield f"{lacking}: Volcano does not call the extender for their pods"


# --- kube-scheduler ---------------------------------------------------------------------------------------


def _check_kube_scheduler(snapshot: Snapshot) -> Assessment:
    options = snapshots.read_options(snapshot.find("deployments", snapshots.EXTENDER))
    assessments = [
        _check_kube_configuration(configuration, requires_certificate=_CLIENT_CA in options)
        for configuration in list_kube_configurations(snapshot)
    ]
    require(assessments, "its configuration is a file on the control plane nodes, which the API does not show")
    calling = [assessment for assessment in assessments if assessment.state is not State.WARN]
    return (calling or assessments)[0]  # one scheduler that calls the extender is enough


def list_kube_configurations(snapshot: Snapshot) -> Iterator[Configuration]:
    """Yield each KubeSchedulerConfiguration in a ConfigMap."""
    for configmap in snapshot.get_all("kube-system"):
        for value in get_map(configmap, "data").values():
            if "KubeSchedulerConfiguration" in value:
                yield _parse(f"ConfigMap {get_name(configmap)}", value)


def list_own_extenders(configuration: Configuration) -> list[Mapping[str, Any]]:
    """Return railwright's entries among the extenders of a KubeSchedulerConfiguration."""
    extenders = _read_list(configuration.tree, "extenders")
    return [item for item in extenders if "/scheduler" in str(get_path(item, "urlPrefix"))]


def _check_kube_configuration(configuration: Configuration, *, requires_certificate: bool) -> Assessment:
    configmap, own_extenders = configuration.configmap, list_own_extenders(configuration)
    if configuration.problem:
        return fail(f"{configmap} is not valid YAML: {configuration.problem}")
    if not own_extenders:
        return warn(f"kube-scheduler does not call railwright: {configmap} has no extender with its URL")
    actual = own_extenders[0]
    problems = [
        f"{key} is {actual.get(key)}, not {value}" for key, value in _KUBE_SCHEDULER.items() if actual.get(key) != value
    ]
    if requires_certificate and not {"certFile", "certData"} & set(get_map(actual, "tlsConfig")):
        problems.append("tlsConfig has no certFile and keyFile, but the extender requires a client certificate")
    return fail(f"{configmap}: {'; '.join(problems)}") if problems else ok(configmap)


# --- gangs that a scheduler keeps in one domain by itself ------------------------------------------------


def _check_gang_topology(snapshot: Snapshot) -> Assessment:
    """Say what each fabric asks of the schedulers, and warn if it has no effect or a scheduler chooses at random."""
    asking = {
        name: requests.list_keys(fabric.placement)
        for name, fabric in snapshot.fabrics.items()
        if fabric.placement.gang_topology != requests.OFF
    }
    unset = "no fabric sets placement.gangTopology: schedulers decide as they are configured, or the extender"
    require(asking, unset)
    if dropped := [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in snapshot.get_all("pods")
        if explanations.is_topology_dropped(pod)
    ]:
        count = text.format_count(len(dropped), "pod")
        return warn(f"the API server dropped spec.scheduling of Jobs, so that of {count} has no effect: {dropped[0]}")
    described = "; ".join(
        f"fabric {name}: {snapshot.fabrics[name].placement.gang_topology}, at {' or '.join(keys) or 'no level'}"
        for name, keys in asking.items()
    )
    accelerators = snapshot.policy.accelerators if snapshot.policy else ()
    hard = [name for name in asking if snapshot.fabrics[name].placement.gang_topology == requests.REQUIRED]
    in_hyper_nodes = {name for name, keys in asking.items() if not all(map(requests.is_label, keys))}
    soft = in_hyper_nodes.difference(hard)
    if in_hyper_nodes and (problem := _find_hyper_node_problem(snapshot, accelerators, soft)):
        return warn(f"{described}; {problem}")
    if not any(requests.is_label(key) for name in hard for key in asking[name]):
        return ok(described)
    scored = list(_list_scored(snapshot))
    if not scored:
        return ok(
            f"{described}; not visible here: scoringStrategy.resources of NodeResourcesFit in kube-scheduler's file"
        )
    lacking = [name for name, resources in scored if not set(accelerators) & resources]
    if not lacking:
        return ok(described)
    return warn(
        f"{described}; {lacking[0]}: scoringStrategy.resources of NodeResourcesFit does not list "
        f"{' or '.join(accelerators)}, so of several domains kube-scheduler does not take the fullest"
    )


def _find_hyper_node_problem(snapshot: Snapshot, accelerators: Sequence[str], soft: Collection[str]) -> str:
    """Return why Volcano places gangs in HyperNodes worse than it could; "" if it does not, or if that is unknown.

    `soft` names the fabrics that prefer one HyperNode and do not require it.
    """
    plugins = list_volcano_plugins(read_volcano(snapshot))
    if not plugins:
        return ""
    plugin = next((plugin for plugin in plugins if plugin.get("name") == _HYPER_NODE_PLUGIN), None)
    if plugin is None:
        return f"{_VOLCANO} lacks the plugin {_HYPER_NODE_PLUGIN}, so Volcano does not keep gangs in one HyperNode"
    listed = str(get_map(plugin, "arguments").get(_HYPER_NODE_RESOURCES, "")).split(",")
    if set(accelerators) & set(map(str.strip, listed)):
        if soft and any(plugin.get("name") == "extender" for plugin in plugins):
            return (
                f"{_VOLCANO} calls the extender, which chooses the leaves of a gang better without a soft constraint "
                f"(fabric {text.join_first(sorted(soft), 5)})"
            )
        return ""
    return (
        f"{_VOLCANO}: {_HYPER_NODE_RESOURCES} of the plugin {_HYPER_NODE_PLUGIN} does not list "
        f"{' or '.join(accelerators)}, so of several HyperNodes Volcano does not take the fullest"
    )


def _list_scored(snapshot: Snapshot) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each ConfigMap with a configuration of kube-scheduler, and what NodeResourcesFit scores in its profiles."""
    for configuration in list_kube_configurations(snapshot):
        if configuration.problem:
            continue  # kube-scheduler-configuration reports it
        profiles = _read_list(configuration.tree, "profiles")
        resources: set[str] = set()
        for plugin in (plugin for profile in profiles for plugin in _read_list(profile, "pluginConfig")):
            if get_path(plugin, "name") == "NodeResourcesFit":
                listed = get_path(plugin, "args", "scoringStrategy", "resources")
                resources |= {str(get_path(row, "name")) for row in (listed if isinstance(listed, list) else ())}
        yield configuration.configmap, frozenset(resources)


CHECKS: Checks = {
    "gang-topology": _check_gang_topology,
    "extender-lease": installation.require_deployment(snapshots.EXTENDER, _check_lease),
    "extender-callers": installation.require_deployment(snapshots.EXTENDER, _check_callers),
    "volcano-configuration": _check_volcano,
    "kube-scheduler-configuration": _check_kube_scheduler,
}
