"""Checks of scheduling: the extender, its Lease, and scheduler configurations stored in ConfigMaps."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from railwright.cli.checking import callers, check_rows, policy, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn

_EXTENDER_PORT, _VOLCANO_PORT = 8713, 8715  # of the extender's Service
_VERBS = {  # arguments of Volcano's extender plugin and the extender's paths (docs/interface.md 4)
    "extender.prioritizeVerb": "prioritize",
    "extender.allocateFuncVerb": "allocate",
    "extender.deallocateFuncVerb": "deallocate",
    "extender.onSessionCloseVerb": "session-close",
}


def _check_lease(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    deployment = snapshot.find("deployments", snapshots.EXTENDER)
    lease = snapshot.find("leases", snapshots.EXTENDER)
    if deployment is None:
        return skip(f"Deployment {snapshots.EXTENDER} does not exist")
    if lease is None:
        if not any(argument.startswith("--leader-elect") for argument in snapshots.list_arguments(deployment)):
            return skip("the extender runs without --leader-elect, so it needs no Lease")
        return fail(f"Lease {snapshots.EXTENDER} does not exist: no extender replica is active")
    problem = snapshots.find_lease_problem(lease, snapshot.now)
    if problem:
        return fail(f"Lease {snapshots.EXTENDER} {problem}: no extender replica is active")
    return ok(f"held by {snapshots.get_lease_holder(lease)}")


def _check_volcano(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    configmap = snapshot.get_one("volcano")
    if configmap is None:
        return skip(
            f"ConfigMap {snapshots.VOLCANO_NAMESPACE}/{snapshots.VOLCANO_CONFIGMAP} does not exist: "
            "Volcano is not "
            "installed, or is configured elsewhere"
        )
    if snapshot.find("deployments", snapshots.EXTENDER) is None and "deployments" not in snapshot.unread:
        return skip(f"Deployment {snapshots.EXTENDER} does not exist")
    try:
        plugins = list_volcano_plugins(snapshot)
    except yaml.YAMLError as error:
        return fail(f"Volcano's configuration is not valid YAML: {' '.join(str(error).split())}")
    extender_plugin = next((plugin for plugin in plugins if plugin.get("name") == "extender"), None)
    if extender_plugin is None:
        return warn("Volcano does not call railwright: its tiers have no plugin `extender`")
    problems = [
        *_find_argument_problems(snapshots.get_map(extender_plugin, "arguments"), snapshot),
        *_find_order_problems(plugins),
    ]
    return (
        fail("; ".join(problems))
        if problems
        else ok(str(snapshots.get_path(extender_plugin, "arguments", "extender.urlPrefix")))
    )


def list_volcano_plugins(snapshot: snapshots.ClusterSnapshot) -> list[Mapping[str, Any]]:
    """Return the plugins of Volcano's configuration in the order of its tiers. Raises YAMLError."""
    data = snapshots.get_map(snapshot.get_one("volcano"), "data")
    text = next((str(value) for key, value in data.items() if key.endswith(".conf")), "")
    tiers = _read_list(yaml.safe_load(text), "tiers")
    return [item for tier in tiers for item in _read_list(tier, "plugins") if isinstance(item, Mapping)]


def list_own_extenders(text: str) -> list[Mapping[str, Any]]:
    """Return railwright's entries among the extenders of a KubeSchedulerConfiguration. Raises YAMLError."""
    extenders = _read_list(yaml.safe_load(text), "extenders")
    return [item for item in extenders if "/scheduler" in str(snapshots.get_path(item, "urlPrefix"))]


def list_kube_configurations(snapshot: snapshots.ClusterSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the name of each ConfigMap with a KubeSchedulerConfiguration, and its text."""
    for configmap in snapshot.get_all("kube-system"):
        for text in snapshots.get_map(configmap, "data").values():
            if "KubeSchedulerConfiguration" in text:
                yield snapshots.get_name(configmap), text


def _read_list(tree: Any, key: str) -> list[Any]:
    items = snapshots.get_path(tree, key)
    return items if isinstance(items, list) else []


def _find_argument_problems(plugin_arguments: Mapping[str, Any], snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    url = str(plugin_arguments.get("extender.urlPrefix", ""))
    if "/volcano" not in url:
        yield f"extender.urlPrefix is {url or 'missing'}; it must end in /volcano"
    if snapshots.EXTENDER in url:
        options = callers.read_options(snapshot.find("deployments", snapshots.EXTENDER))
        scheme = "http" if "--plain-http" in options else "https"
        if not url.startswith(f"{scheme}://"):
            yield f"extender.urlPrefix is {url}, but the extender serves {scheme}"
        if callers.VOLCANO_LISTEN in options and f":{_EXTENDER_PORT}/" in url:
            yield f"extender.urlPrefix is {url}, but Volcano has a port of its own: {_VOLCANO_PORT}"
        if callers.CLIENT_CA in options and callers.VOLCANO_LISTEN not in options:
            yield (
                "the extender requires a client certificate, which Volcano cannot present: set "
                "extender.volcano.enabled of the chart"
            )
    for key, verb in _VERBS.items():
        if plugin_arguments.get(key) != verb:
            yield f"{key} is {plugin_arguments.get(key)}, not {verb}"
    if plugin_arguments.get("extender.ignorable") is not True:
        yield "extender.ignorable is not true: while the extender is down, Volcano schedules no pods"
    if not isinstance(plugin_arguments.get("extender.httpTimeout"), str):
        yield "extender.httpTimeout is not a duration such as 5s"
    yield from _find_missing_resources(plugin_arguments.get("extender.managedResources"), snapshot)


def _find_missing_resources(resources: Any, snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    """Check managedResources. Volcano calls the extender only for pods that request one; without the list, for all."""
    if resources is None:
        return
    if not isinstance(resources, list):
        yield "extender.managedResources is not a list"
        return
    pools = {
        pool
        for fabric in (snapshot.policy.fabrics.values() if snapshot.policy else ())
        for rail in fabric.rails
        if (pool := policy.get_resource(snapshot, rail))
    }
    missing = sorted(pools - {str(resource) for resource in resources})
    if missing:
        yield (
            f"extender.managedResources lacks {snapshots.join_limited(missing)}: Volcano does not call the extender "
            "for their pods"
        )


def _find_order_problems(plugins: list[Mapping[str, Any]]) -> Iterator[str]:
    order = [plugin.get("name") for plugin in plugins]
    if "predicates" in order and order.index("extender") < order.index("predicates"):
        yield "plugin extender is listed before predicates: the extender is called for nodes that do not fit"


def _check_kube_scheduler(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    deployment = snapshot.find("deployments", snapshots.EXTENDER)
    requires_certificate = callers.CLIENT_CA in callers.read_options(deployment)
    assessments = [
        _check_kube_configuration(text, configmap, requires_certificate=requires_certificate)
        for configmap, text in list_kube_configurations(snapshot)
    ]
    calling = [assessment for assessment in assessments if assessment.state is not check_rows.State.WARN]
    if assessments:  # one scheduler that calls the extender is enough
        return (calling or assessments)[0]
    return skip("its configuration is a file on the control plane nodes, which the API does not show")


def _check_kube_configuration(text: str, configmap: str, *, requires_certificate: bool) -> check_rows.Assessment:
    try:
        own_extenders = list_own_extenders(text)
    except yaml.YAMLError as error:
        return fail(f"ConfigMap {configmap} is not valid YAML: {' '.join(str(error).split())}")
    if not own_extenders:
        return warn(f"kube-scheduler does not call railwright: ConfigMap {configmap} has no extender with its URL")
    expected = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "nodeCacheCapable": True, "ignorable": True}
    problems = [
        f"{key} is {own_extenders[0].get(key)}, not {value}"
        for key, value in expected.items()
        if own_extenders[0].get(key) != value
    ]
    tls = snapshots.get_map(own_extenders[0], "tlsConfig")
    if requires_certificate and not {"certFile", "certData"} & set(tls):
        problems.append("tlsConfig has no certFile and keyFile, but the extender requires a client certificate")
    return fail(f"ConfigMap {configmap}: {'; '.join(problems)}") if problems else ok(f"ConfigMap {configmap}")


CHECKS: check_rows.Checks = {
    "extender-lease": _check_lease,
    "extender-callers": callers.assess,
    "volcano-configuration": _check_volcano,
    "kube-scheduler-configuration": _check_kube_scheduler,
}
