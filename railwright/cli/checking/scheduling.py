"""Rows about scheduling: the extender, its lease, and the schedulers' configurations as far as the cluster has them."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from railwright.cli.checking import installation, leases, model, rails
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, skip, warn
from railwright.fabric import names

_EXAMPLE = "manifests/examples/schedulers"
_VOLCANO_EDIT = f"kubectl -n {sight.VOLCANO_NAMESPACE} edit configmap {sight.VOLCANO_CONFIGMAP}"
_VERBS = {  # of Volcano's extender plugin, and our paths (CONTRACT section 4)
    "extender.prioritizeVerb": "prioritize",
    "extender.allocateFuncVerb": "allocate",
    "extender.deallocateFuncVerb": "deallocate",
    "extender.onSessionCloseVerb": "session-close",
}


def _lease(seen: sight.Seen) -> model.Verdict:
    deployment = seen.named("deployments", sight.EXTENDER)
    lease = seen.named("leases", sight.EXTENDER)
    if deployment is None:
        return skip(f"there is no Deployment {sight.EXTENDER}")
    if lease is None:
        if not any(each.startswith("--leader-elect") for each in sight.arguments(deployment)):
            return skip("one replica that holds no Lease (no --leader-elect)")
        return fail(f"Lease {sight.EXTENDER} does not exist: no replica answers schedulers")
    problem = leases.problem(lease, seen.now)
    if problem:
        return fail(f"Lease {sight.EXTENDER} {problem}: no replica answers schedulers")
    return ok(f"held by {leases.holder(lease)}")


def _volcano(seen: sight.Seen) -> model.Verdict:
    configmap = seen.one("volcano")
    if configmap is None:
        return skip(f"there is no ConfigMap {sight.VOLCANO_NAMESPACE}/{sight.VOLCANO_CONFIGMAP}: Volcano is not "
                    "installed, or configured elsewhere")  # fmt: skip
    if seen.named("deployments", sight.EXTENDER) is None and "deployments" not in seen.unread:
        return skip(f"there is no Deployment {sight.EXTENDER}")
    text = next(
        (str(value) for key, value in (sight.dig(configmap, "data") or {}).items() if key.endswith(".conf")), ""
    )
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return fail(f"its configuration is no YAML: {' '.join(str(error).split())}")
    plugins = list(_plugins(tree))
    own = next((each for each in plugins if each.get("name") == "extender"), None)
    if own is None:
        return warn("Volcano does not ask railwright: no plugin `extender` in its tiers")
    problems = [*_argument_problems(sight.dig(own, "arguments") or {}, seen), *_order_problems(plugins)]
    return fail("; ".join(problems)) if problems else ok(str(sight.dig(own, "arguments", "extender.urlPrefix")))


def _plugins(tree: Any) -> Iterator[Mapping[str, Any]]:
    tiers = sight.dig(tree, "tiers")
    for tier in tiers if isinstance(tiers, list) else ():
        plugins = sight.dig(tier, "plugins")
        yield from (each for each in (plugins if isinstance(plugins, list) else ()) if isinstance(each, Mapping))


def _argument_problems(given: Mapping[str, Any], seen: sight.Seen) -> Iterator[str]:
    url = str(given.get("extender.urlPrefix", ""))
    if "/volcano" not in url:
        yield f"extender.urlPrefix is {url or 'missing'}; it ends in /volcano"
    if sight.EXTENDER in url:
        scheme = "http" if "--plain-http" in sight.arguments(seen.named("deployments", sight.EXTENDER)) else "https"
        if not url.startswith(f"{scheme}://"):
            yield f"extender.urlPrefix is {url}, and the extender serves {scheme}"
    for key, verb in _VERBS.items():
        if given.get(key) != verb:
            yield f"{key} is {given.get(key)}, not {verb}"
    if given.get("extender.ignorable") is not True:
        yield "extender.ignorable is not true: while railwright is away, Volcano places nothing"
    if not isinstance(given.get("extender.httpTimeout"), str):
        yield "extender.httpTimeout is no duration such as 5s"
    yield from _managed(given.get("extender.managedResources"), seen)


def _managed(given: Any, seen: sight.Seen) -> Iterator[str]:
    """Volcano asks us only about pods that want one of these; without the list, about all."""
    if given is None:
        return
    if not isinstance(given, list):
        yield "extender.managedResources is no list"
        return
    wanted = {
        pool
        for fabric in (seen.policy.fabrics.values() if seen.policy else ())
        for rail in fabric.rails
        if (pool := rails.resource_of(seen, rail))
    }
    lacking = sorted(wanted - {str(each) for each in given})
    if lacking:
        yield f"extender.managedResources is without {sight.listed(lacking)}: pods of those rails never reach us"


def _order_problems(plugins: list[Mapping[str, Any]]) -> Iterator[str]:
    order = [each.get("name") for each in plugins]
    if "predicates" in order and order.index("extender") < order.index("predicates"):
        yield "plugin extender is listed before predicates: nodes that cannot take a pod are asked about"


def _kube_scheduler(seen: sight.Seen) -> model.Verdict:
    found = [
        _kube_configuration(text, sight.name_of(configmap))
        for configmap in seen.all("kube-system")
        for text in (sight.dig(configmap, "data") or {}).values()
        if "KubeSchedulerConfiguration" in text
    ]
    asking = [each for each in found if each.state is not model.State.WARN]
    if found:  # a second scheduler need not ask us, as long as one does
        return (asking or found)[0]
    return skip("its configuration is a file on the control plane's machines, which the cluster does not show")


def _kube_configuration(text: str, where: str) -> model.Verdict:
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return fail(f"ConfigMap {where} is no YAML: {' '.join(str(error).split())}")
    extenders = sight.dig(tree, "extenders")
    own = [
        e for e in (extenders if isinstance(extenders, list) else ()) if "/scheduler" in str(sight.dig(e, "urlPrefix"))
    ]
    if not own:
        return warn(f"kube-scheduler does not ask railwright: no extender of ours in ConfigMap {where}")
    wanted = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "nodeCacheCapable": True, "ignorable": True}
    problems = [f"{key} is {own[0].get(key)}, not {value}" for key, value in wanted.items() if own[0].get(key) != value]
    return fail(f"ConfigMap {where}: {'; '.join(problems)}") if problems else ok(f"ConfigMap {where}")


def rows() -> Iterator[Row]:
    """The group `scheduling`."""
    yield from installation.extender_rows()
    yield Row("extender-lease", "one extender answers schedulers", _lease,
              f"kubectl -n {names.NAMESPACE} get lease {sight.EXTENDER} -o yaml; then: kubectl -n {names.NAMESPACE} "
              f"rollout restart deployment {sight.EXTENDER}",
              ("deployments", "leases"), ("extender-deployment", "extender-replicas"))  # fmt: skip
    yield Row("extender-endpoints", "the extender's Service leads somewhere", installation.extender_endpoints,
              f"kubectl -n {names.NAMESPACE} get endpointslices -l kubernetes.io/service-name={sight.EXTENDER}",
              ("deployments", "services", "slices"),
              ("extender-deployment", "extender-replicas", "extender-lease"))  # fmt: skip
    yield Row("volcano-configuration", "Volcano asks the extender rightly", _volcano,
              f"{_VOLCANO_EDIT}; {_EXAMPLE}/volcano-scheduler.yaml has all of it", ("volcano",),
              ("api-reachable",))  # fmt: skip
    yield Row("kube-scheduler-configuration", "kube-scheduler asks the extender rightly", _kube_scheduler,
              f"compare with {_EXAMPLE}/kube-scheduler.yaml", ("kube-system",), ("api-reachable",))  # fmt: skip
