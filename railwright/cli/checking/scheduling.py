"""Rows about scheduling: who may call the extender, and scheduler configurations stored in ConfigMaps."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from railwright.cli.checking import installation, nodes, snapshots
from railwright.cli.checking.rows import Assessment, State, fail, ok, require, row, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_name, get_path
from railwright.cluster import documents
from railwright.fabric import hypernodes, names, text
from railwright.fabric.gang_topology import requests

GROUP = "scheduling"

_EXTENDER_PORT, _VOLCANO_PORT = 8713, 8715  # of the extender's Service
_VOLCANO_LISTEN, _CLIENT_CA = "--volcano-listen", "--client-ca"
_PREDICATE = "extender.predicateVerb"
_DRA = "predicate.DynamicResourceAllocationEnable"  # of Volcano's plugin predicates, read before 1.15
_VERBS = {  # arguments of Volcano's extender plugin and the extender's paths (docs/interface.md 4)
    "extender.prioritizeVerb": "prioritize",
    "extender.allocateFuncVerb": "allocate",
    "extender.deallocateFuncVerb": "deallocate",
    "extender.onSessionCloseVerb": "session-close",
}
_KUBE_SCHEDULER = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "nodeCacheCapable": True, "ignorable": True}
_HYPER_NODE_PLUGIN = "network-topology-aware"
_VOLCANO = f"ConfigMap {snapshots.VOLCANO}"


# --- the extender -----------------------------------------------------------------------------------------


@row("kubectl -n {namespace} logs deployment/{extender}", reads="deployments")
def check_extender_replicas(snapshot: Snapshot) -> Assessment:
    """Extender is installed and ready.

    All replicas of the Deployment `railwright-extender` are ready, and its Service has a ready endpoint. Each replica
    answers schedulers. Without it pods are still injected, but the scheduler alone places them. If the pods are ready
    and the Service has no endpoint, its selector does not match their labels.
    """
    deployment = snapshot.find("deployments", snapshots.EXTENDER)
    require(deployment, f"Deployment {snapshots.EXTENDER} is not installed: gangs are placed without railwright")
    readiness = installation.check_replicas(snapshot, deployment)
    if readiness.state is not State.OK:
        return readiness
    return installation.find_endpoint_problem(snapshot, snapshots.EXTENDER) or readiness


# --- Volcano ----------------------------------------------------------------------------------------------


@row(
    "kubectl -n volcano-system edit configmap volcano-scheduler-configmap; a complete example: "
    "manifests/examples/schedulers/volcano-scheduler.yaml",
    reads="volcano",
)
def check_volcano_configuration(snapshot: Snapshot) -> Assessment:
    """Volcano is configured to call the extender.

    ConfigMap `volcano-scheduler-configmap` in `volcano-system` lists the plugin `extender` after `predicates`. It has
    railwright's path and verbs, values of the right type, `ignorable: true` and all device pools of the rails. Warns if
    a fabric has `nvlinkSegment` and `extender.predicateVerb` is not set. Skipped if the ConfigMap does not exist.

    For fabrics with `claims`: Volcano allocates claims (always from 1.15; before with the argument
    `predicate.DynamicResourceAllocationEnable: true` of its plugin `predicates`). Pods whose devices all come as claims
    have a limit `railwright.io/rails: "0"`, so this name must be among `extender.managedResources`, if there is such a
    list.
    """
    missing = f"{_VOLCANO} does not exist: Volcano is not installed, or is configured elsewhere"
    require(snapshot.get_one("volcano"), missing)
    tree, problem = _parse(_get_volcano_text(snapshot))
    if problem:
        return fail(f"Volcano's configuration is not valid YAML: {problem}")
    plugins = _list_plugins(tree)
    if _has_claims(snapshot) and not _allocates_claims(snapshot, plugins):
        return fail(
            f"Volcano's plugin predicates has no argument {_DRA}: true, without which Volcano before 1.15 allocates no "
            "claims"
        )
    options = snapshots.read_options(installation.get_deployment(snapshot, snapshots.EXTENDER))
    order = [plugin.get("name") for plugin in plugins]
    if "extender" not in order:
        return warn("Volcano does not call railwright: its tiers have no plugin `extender`")
    arguments = get_map(plugins[order.index("extender")], "arguments")
    problems = [*_find_url_problems(arguments, options), *_find_argument_problems(arguments, snapshot)]
    if "predicates" in order and order.index("extender") < order.index("predicates"):
        problems.append("plugin extender is listed before predicates: the extender is called for nodes that do not fit")
    if problems:
        return fail("; ".join(problems))
    url, verb = str(arguments.get("extender.urlPrefix")), arguments.get(_PREDICATE)
    segmented = [name for name, item in nodes.list_fabrics(snapshot).items() if (item.nvlink_segment or 1) > 1]
    if segmented and verb != "predicate":
        return warn(
            f"{_PREDICATE} is {verb or 'not set'}, not predicate: fabric {text.join_first(segmented, 5)} has "
            "nvlinkSegment, and Volcano may place pods of a segment outside of its NVLink domain"
        )
    if verb and not segmented:  # it costs a request with the whole node for each task
        return ok(f"{url}; {_PREDICATE} is needed only if no pod may start on a node with a broken rail")
    return ok(url)


def _allocates_claims(snapshot: Snapshot, plugins: Sequence[Mapping[str, Any]]) -> bool:
    """True if Volcano allocates claims: from 1.15 always (pkg/scheduler/plugins/predicates), before by an argument."""
    images = snapshots.list_images(snapshot.get_one("volcano-deployment"))
    releases = (re.match(r"(\d+)\.(\d+)", snapshots.get_image_version(image)) for image in images)
    if any(match and (int(match[1]), int(match[2])) >= (1, 15) for match in releases):
        return True
    return any(get_map(item, "arguments").get(_DRA) is True for item in plugins if item.get("name") == "predicates")


def _has_claims(snapshot: Snapshot) -> bool:
    return any(fabric.claims for fabric in snapshot.fabrics.values())


def _get_volcano_text(snapshot: Snapshot) -> str:
    data = get_map(snapshot.get_one("volcano"), "data")
    return next((str(value) for key, value in data.items() if key.endswith(".conf")), "")


def _list_plugins(tree: Any) -> list[Mapping[str, Any]]:
    """Return the plugins of Volcano's configuration in the order of its tiers."""
    plugins = (item for tier in get_list(tree, "tiers") for item in get_list(tier, "plugins"))
    return [item for item in plugins if isinstance(item, Mapping)]


def _parse(configuration: str) -> tuple[Any, str]:
    """Return the tree of a YAML text, and why it is not valid YAML, "" if it is."""
    try:
        return yaml.load(configuration, Loader=documents.LOADER), ""  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        return None, " ".join(str(error).split())


def _find_url_problems(arguments: Mapping[str, Any], options: Mapping[str, str]) -> Iterator[str]:
    url = str(arguments.get("extender.urlPrefix", ""))
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
        setting = "set extender.volcano.enabled of the chart"
        yield f"the extender requires a client certificate, which Volcano cannot present: {setting}"


def _find_argument_problems(arguments: Mapping[str, Any], snapshot: Snapshot) -> Iterator[str]:
    yield from (
        f"{key} is {arguments.get(key)}, not {verb}" for key, verb in _VERBS.items() if arguments.get(key) != verb
    )
    if arguments.get("extender.ignorable") is not True:
        yield "extender.ignorable is not true: while the extender is down, Volcano schedules no pods"
    if not isinstance(arguments.get("extender.httpTimeout"), str):
        yield "extender.httpTimeout is not a duration such as 5s"
    managed = arguments.get("extender.managedResources")
    if managed is None:  # then Volcano calls the extender for all pods
        return
    if not isinstance(managed, list):
        yield "extender.managedResources is not a list"
        return
    fabrics = [fabric for fabric in nodes.list_fabrics(snapshot).values() if fabric.claims is None]
    pools = {rail.resource for fabric in fabrics for rail in fabric.rails if rail.resource}
    pools |= {names.RAILS} if _has_claims(snapshot) else set()
    if missing := text.join_first(sorted(pools - {*map(str, managed)}), 5):
        yield f"extender.managedResources lacks {missing}: Volcano does not call the extender for their pods"


# --- gangs that Kueue or Volcano keeps in one domain ------------------------------------------------------


@row(
    "add the level to Kueue's Topology or correct placement.domains; for HyperNodes, add the plugin "
    "network-topology-aware to Volcano",
    reads="policy",
)
def check_gang_topology(snapshot: Snapshot) -> Assessment:
    """Schedulers keep gangs in one domain as the policy asks.

    Says which level each fabric asks of Kueue and Volcano (`placement.gangTopology`): with `required` the last of
    `domains`, with `preferred` the first. Warns if no Topology of Kueue has the level, or no HyperNode the tier: jobs
    then wait for ever. Also warns if Volcano lacks the plugin that keeps gangs in HyperNodes.
    """
    asking = {
        name: fabric.placement
        for name, fabric in snapshot.fabrics.items()
        if fabric.placement.gang_topology != requests.OFF
    }
    unset = "no fabric sets placement.gangTopology: schedulers decide as they are configured, or the extender"
    require(asking, unset)
    levels = {name: requests.find_level(placement, lambda _: True) or "" for name, placement in asking.items()}
    described = "; ".join(f"fabric {name}: {asking[name].gang_topology}, at {level}" for name, level in levels.items())
    problem = next(_list_missing_levels(snapshot, levels), "")
    if not problem and not all(map(requests.is_label, levels.values())):
        plugins = [plugin.get("name") for plugin in _list_plugins(_parse(_get_volcano_text(snapshot))[0])]
        if plugins and _HYPER_NODE_PLUGIN not in plugins:
            problem = f"{_VOLCANO} lacks the plugin {_HYPER_NODE_PLUGIN}: Volcano does not keep gangs in one HyperNode"
    return warn(f"{described}; {problem}") if problem else ok(described)


def _list_missing_levels(snapshot: Snapshot, levels: Mapping[str, str]) -> Iterator[str]:
    """Yield what Kueue or Volcano cannot do because it has no such level. `levels` are those of the fabrics."""
    has_kueue = "kueue-topologies" not in {*snapshot.unknown, *snapshot.unread}
    labels = {
        get_path(level, "nodeLabel")
        for tree in snapshot.get_all("kueue-topologies")
        for level in get_list(tree, "spec", "levels")
    }
    tiers = sorted({hyper_node.spec.tier for hyper_node in snapshot.get_all("hypernodes")})
    for name, level in levels.items():
        if requests.is_label(level):
            if has_kueue and level not in labels:
                yield f"no Topology of Kueue has the level {level}, so Kueue never admits jobs of fabric {name}"
        elif tiers and (tier := hypernodes.LEVELS.index(level) + 1) not in tiers:
            listed = text.join_first(map(str, tiers), 5)
            yield f"no HyperNode has tier {tier}, which jobs of fabric {name} name; the HyperNodes have: {listed}"


# --- kube-scheduler ---------------------------------------------------------------------------------------


@row(
    "change the KubeSchedulerConfiguration; a complete example: manifests/examples/schedulers/kube-scheduler.yaml",
    reads="kube-system",
)
def check_kube_scheduler_configuration(snapshot: Snapshot) -> Assessment:
    """The kube-scheduler is configured to call the extender.

    As volcano-configuration, for a KubeSchedulerConfiguration in a ConfigMap of `kube-system`. Fails on
    `ignoredByScheduler: true`: nobody else counts the devices. Skipped on most clusters, because it is a file on the
    control plane nodes, which the API does not show.
    """
    assessments = [
        _check_kube_configuration(snapshot, f"ConfigMap {get_name(configmap)}", value)
        for configmap in snapshot.get_all("kube-system")
        for value in get_map(configmap, "data").values()
        if "KubeSchedulerConfiguration" in value
    ]
    require(assessments, "its configuration is a file on the control plane nodes, which the API does not show")
    calling = [assessment for assessment in assessments if assessment.state is not State.WARN]
    return (calling or assessments)[0]  # one scheduler that calls the extender is enough


def _check_kube_configuration(snapshot: Snapshot, configmap: str, configuration: str) -> Assessment:
    tree, problem = _parse(configuration)
    if problem:
        return fail(f"{configmap} is not valid YAML: {problem}")
    own = [item for item in get_list(tree, "extenders") if "/scheduler" in str(get_path(item, "urlPrefix"))]
    if not own:
        return warn(f"kube-scheduler does not call railwright: {configmap} has no extender with its URL")
    problems = [
        f"{key} is {own[0].get(key)}, not {value}" for key, value in _KUBE_SCHEDULER.items() if own[0].get(key) != value
    ]
    managed = get_list(own[0], "managedResources")
    ignored = [str(get_path(item, "name")) for item in managed if get_path(item, "ignoredByScheduler") is True]
    if ignored:
        shared = "kube-scheduler does not count them, so two pods may get one device, and kubelet rejects the later one"
        problems.append(f"ignoredByScheduler is true for {text.join_first(ignored, 5)}: {shared}")
    if _has_claims(snapshot) and managed and names.RAILS not in [get_path(item, "name") for item in managed]:
        problems.append(
            f"managedResources lacks {names.RAILS}: kube-scheduler does not call the extender for pods whose devices "
            "all come as claims"
        )
    options = snapshots.read_options(snapshot.find("deployments", snapshots.EXTENDER))
    if _CLIENT_CA in options and not {"certFile", "certData"} & {*get_map(own[0], "tlsConfig")}:
        problems.append("tlsConfig has no certFile and keyFile, but the extender requires a client certificate")
    return fail(f"{configmap}: {'; '.join(problems)}") if problems else ok(configmap)
