"""Checks of scheduling: the configurations of schedulers for the extender, and the pods that they place."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from railwright.cli import scheduler_configuration as configuration
from railwright.cli.checking import installation, nodes
from railwright.cli.checking.rows import Result, fail, ok, row, warn
from railwright.cli.checking.snapshots import Snapshot, find_named, get_list, get_value, read_options, require_value
from railwright.cluster.installed_names import EXTENDER, NAMESPACE, SCHEDULER
from railwright.fabric import names, text, views
from railwright.fabric.injection import accelerators
from railwright.fabric.policy import model

GROUP = "scheduling"

_VOLCANO_LISTEN = "--volcano-listen"  # option of the extender: a port for Volcano alone
_UNSEEN = (
    "the configuration of this scheduler is a file, so whether it calls the extender is not known. It does if the "
    "extender's metric railwright_requests_total grows while a pod of this fabric is placed"
)
_REPLACED = dt.timedelta(minutes=1)  # a replaced replica may answer while it ends, which takes 45 s at most
_UNREACHED = (
    "configure the scheduler with the present address and CA of the extender, which railwright policy scheduler-config "
    "prints, and restart it; the scheduler's log has the cause"
)


@row(
    "kubectl -n volcano-system edit configmap volcano-scheduler-configmap; to print what the ConfigMap "
    "must have: railwright policy scheduler-config --scheduler volcano"
)
def check_volcano_configuration(snapshot: Snapshot) -> Result:
    """Volcano is configured to call the extender.

    Compares ConfigMap `volcano-scheduler-configmap` in `volcano-system` with what `railwright policy scheduler-config`
    prints: the plugin `extender` comes after `predicates`, and its URL, verbs, types of values and managed resources
    are those of this installation and policy. Warns if a fabric has `nvlinkSegment` and `extender.predicateVerb` is not
    set. Skipped if the ConfigMap does not exist.
    """
    missing = "ConfigMap volcano-system/volcano-scheduler-configmap does not exist"
    require_value(snapshot.find_object("volcano"), f"{missing}: Volcano is not installed, or is configured elsewhere")
    fabrics, tree = (
        nodes.list_rdma_fabrics(snapshot),
        configuration.read_volcano_configuration(find_named(snapshot.get_readable_objects("volcano"))),
    )
    if isinstance(tree, str):
        return fail(f"Volcano's configuration {tree}")
    plugins = configuration.list_plugins(tree)
    if "extender" not in plugins:
        return warn("Volcano does not call railwright: its tiers have no plugin `extender`")
    arguments, order = plugins["extender"], [*plugins]
    problems = [*_find_argument_problems(arguments, snapshot, fabrics)]
    if "predicates" in order and order.index("extender") < order.index("predicates"):
        problems.append("plugin extender is listed before predicates: the extender is called for nodes that do not fit")
    if problems:
        return fail("; ".join(problems))
    segmented = [name for name, item in fabrics.items() if (item.nvlink_segment or 1) > 1]
    verb = arguments.get("extender.predicateVerb", "not set")
    if segmented and verb != "predicate":
        return warn(
            f"extender.predicateVerb is {verb}, not predicate: fabric {text.join_first(segmented, 5)} has "
            "nvlinkSegment, and Volcano may place pods of a segment outside of its NVLink domain"
        )
    return ok(str(arguments["extender.urlPrefix"]))


def _find_argument_problems(
    arguments: Mapping[str, Any], snapshot: Snapshot, fabrics: Mapping[str, model.Fabric]
) -> Iterator[str]:
    """Yield the differences from the arguments that `railwright policy scheduler-config` prints."""
    claimed = {name: fabric for name, fabric in snapshot.fabrics.items() if fabric.claims}
    document = msgspec.structs.replace(snapshot.require_policy(), fabrics={**fabrics, **claimed})
    printed = yaml.safe_load(configuration.format_volcano(configuration.list_managed_resources(document)))
    for key, expected in configuration.list_plugins(printed)["extender"].items():
        value = arguments.get(key)
        if key == "extender.urlPrefix":
            yield from _find_url_problems(str(value or "missing"), snapshot)
        elif key == "extender.httpTimeout":
            if not isinstance(value, str):
                yield f"{key} is not a duration such as {expected}"
        elif key == configuration.MANAGED:  # without it, Volcano asks about all pods
            managed = {*map(str, get_list(arguments, key))}
            if key in arguments and (missing := text.join_first(sorted({*(expected or ())} - managed), 5)):
                yield f"{key} lacks {missing}: the scheduler does not ask the extender about pods that request them"
        elif value != expected:
            yield f"{key} is {value!r}, not {expected!r}"


def _find_url_problems(url: str, snapshot: Snapshot) -> Iterator[str]:
    options = read_options(find_named(snapshot.get_readable_objects("deployments"), EXTENDER))
    scheme, port = "http" if "--plain-http" in options else "https", 8715 if _VOLCANO_LISTEN in options else 8713
    expected = f"{scheme}://{EXTENDER}.{NAMESPACE}.svc:{port}"
    if "/volcano" not in url or (EXTENDER in url and not url.startswith(expected)):
        yield f"extender.urlPrefix is {url}, not {expected}/volcano"
    if "--client-ca" in options and _VOLCANO_LISTEN not in options:
        setting = "set extender.volcano.enabled of the chart"
        yield f"the extender requires a client certificate, which Volcano cannot present: {setting}"


@row(
    "let one scheduler place all pods that request accelerators of these nodes: name it in their schedulerName, or "
    "taint the nodes and let only pods of the fabric tolerate it",
    each=nodes.list_rdma_fabrics,
    after="policy",
)
def check_schedulers(snapshot: Snapshot, fabric: model.Fabric) -> Result:
    """One scheduler places the pods of a fabric's nodes, and asks the extender about them.

    Each scheduler counts devices by its own watch. Two that choose one node at the same moment both bind their pod, and
    kubelet rejects the later one (`UnexpectedAdmissionError`). Warns about pods on nodes of the fabric that request
    accelerators and name another scheduler than the one that asks the extender. That scheduler is
    `placement.schedulerName` of the fabric; without it, Volcano or the chart's scheduler if it asks; otherwise the
    scheduler of most injected pods there. Skipped for a kube-scheduler, whose configuration is a file on the control
    plane nodes: whether it asks is not known.

    Also warns if injected pods were placed while no scheduler asked, by `railwright_requests_total` of the extender's
    pods: the scheduler is not configured, does not reach the extender, or rejects its certificate. Pods that were
    placed within a minute after the extender's pods became ready do not count, because the former ones may have
    answered. The metric is read through the API server's proxy, by the permission to get `pods/proxy` in railwright's
    namespace, which the role `edit` has. Without that permission, or where a NetworkPolicy closes the port of the
    metrics, the row does not warn about missing requests.
    """
    installation.get_deployment(snapshot, EXTENDER)
    pool = {node.name for node in nodes.list_nodes(snapshot, fabric)}
    pods = [
        pod
        for pod in snapshot.live_pods
        if pod.spec.node_name in pool
        and accelerators.has_accelerator(
            accelerators.list_requested_by_containers(pod.spec.containers), snapshot.accelerators
        )
    ]
    plugins = configuration.list_plugins(
        configuration.read_volcano_configuration(find_named(snapshot.get_readable_objects("volcano")))
    )
    callers = ["volcano"] if "extender" in plugins else []
    if find_named(snapshot.get_readable_objects("deployments"), SCHEDULER):
        callers.append(SCHEDULER)  # its configuration is the chart's
    injected = [pod for pod in pods if names.INJECTION in pod.metadata.annotations]
    own = Counter(map(configuration.get_scheduler, injected))
    candidates = sorted(callers or own, key=lambda name: -own[name])
    chosen = fabric.placement.scheduler_name or require_value(candidates, "no pod with accelerators runs there")[0]
    problems = []
    if others := [pod for pod in pods if configuration.get_scheduler(pod) != chosen]:
        placed_by = text.join_first(sorted(map(configuration.get_scheduler, others)), 3)
        listed = text.join_first([pod.metadata.full_name for pod in others], 4)
        problems.append(f"{placed_by} has placed {listed}, but the scheduler of these nodes is {chosen}")
    if unanswered := _describe_unanswered(snapshot, injected):
        return warn("; ".join([unanswered, *problems]), _UNREACHED)
    if problems:
        return warn(problems[0])
    counted = f"{chosen}, {text.format_count(len(pods), 'pod')}"
    require_value(chosen in callers, f"{counted}; {_UNSEEN}")
    return ok(counted)


def _describe_unanswered(snapshot: Snapshot, injected: Sequence[views.Pod]) -> str:
    """Return text that names the pods which were placed although the extender has answered no scheduler.

    Return "" if there are none, or if the metrics of one of the extender's pods could not be read.
    """
    asked = snapshot.list_server_pods(EXTENDER)
    answered = [snapshot.scheduler_requests.get(get_value(pod, "metadata", "name")) for pod in asked]
    ready = [  # not the start: a container that starts again counts from 0
        condition["lastTransitionTime"]
        for pod in asked
        for condition in get_list(pod, "status", "conditions")
        if (condition.get("type"), condition.get("status")) == ("Ready", "True") and condition.get("lastTransitionTime")
    ]
    if not answered or any(count != 0 for count in answered) or len(ready) < len(answered):
        return ""
    since = f"{dt.datetime.fromisoformat(max(ready)) + _REPLACED:%Y-%m-%dT%H:%M:%SZ}"
    placed = [pod.metadata.full_name for pod in injected if pod.status.bound_at > since]
    if not placed:
        return ""
    listed = text.join_first(placed, 4)
    return f"the extender's pods have answered no scheduler, but these pods were placed after {since}: {listed}"
