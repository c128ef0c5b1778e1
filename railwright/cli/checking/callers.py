"""Says who may call each path of the extender: by client certificate, by NetworkPolicy, or whoever reaches the port."""

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.cli.checking import check_rows, network_policies, snapshots
from railwright.cli.checking.check_rows import ok, skip, warn

LISTEN, VOLCANO_LISTEN, CLIENT_CA = "--listen", "--volcano-listen", "--client-ca"
_DEFAULT_LISTEN = ":8713"
_FIX = (
    "set extender.clientAuth of the chart for kube-scheduler, which can present a client certificate, and "
    "extender.volcano.enabled and networkPolicy.enabled for Volcano, which cannot"
)


def read_options(deployment: Any) -> Mapping[str, str]:
    """Return the options of the extender's containers."""
    return dict(argument.partition("=")[::2] for argument in snapshots.list_arguments(deployment))


def assess(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """Return who may call the paths of the extender.

    If some are open to everyone, the row has the fix; it warns if the options close others.
    """
    deployment = snapshot.find("deployments", snapshots.EXTENDER)
    if deployment is None:
        return skip(f"Deployment {snapshots.EXTENDER} does not exist")
    options = read_options(deployment)
    listen = options.get(LISTEN) or _DEFAULT_LISTEN
    volcano_listen = options.get(VOLCANO_LISTEN)
    sentences, is_open = [], False
    for path, address, is_certified in (
        ("/scheduler", listen, CLIENT_CA in options),
        ("/volcano", volcano_listen or listen, CLIENT_CA in options and not volcano_listen),
    ):
        number = int(address.rpartition(":")[2])
        peers = _list_peers(snapshot, deployment, number)
        callers = snapshots.join_limited(peers) or "whoever reaches the port"
        if is_certified:
            callers = f"a client certificate of {options.get('--client-names') or 'anyone whom the CA has certified'}"
        elif not peers:
            is_open = True
        sentences.append(f"{path} on port {number}: {callers}")
    sentences.append("/explain: a token that may read the pod")
    if problem := snapshot.unread.get("network-policies"):
        sentences.append(f"NetworkPolicies are unknown, because {problem}")
    text = "; ".join(sentences)
    if not is_open:
        return ok(text)
    is_requested = CLIENT_CA in options or volcano_listen
    return (warn if is_requested else skip)(f"{text}. To close what is open, {_FIX}")


def _list_peers(snapshot: snapshots.ClusterSnapshot, deployment: Any, number: int) -> Sequence[str]:
    labels = snapshots.get_map(deployment, "spec", "template", "metadata", "labels")
    containers = snapshots.get_list(deployment, "spec", "template", "spec", "containers")
    ports = [port for container in containers for port in snapshots.get_list(container, "ports")]
    name = next((str(port.get("name")) for port in ports if port.get("containerPort") == number), "")
    policies = snapshot.get_all("network-policies")
    return network_policies.list_peers(policies, snapshot.namespace, labels, number, name)
