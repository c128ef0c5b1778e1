"""Creates Volcano's CRDs, webhook configurations and scheduler configuration."""

import base64
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from plane import api

NAMESPACE = "volcano-system"
# Chart v1.14.1 (installer/helm/chart/volcano/config/volcano-scheduler.conf), with one tier more for an extender.
_TIERS: Sequence[Sequence[Mapping[str, Any]]] = (
    ({"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}),
    tuple({"name": name} for name in ("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack")),
)
_CLAIMS = {"name": "predicates", "arguments": {"predicate.DynamicResourceAllocationEnable": True}}


@dataclasses.dataclass(frozen=True)
class Admission:
    """One admission service of vc-webhook-manager (chart v1.14.1, templates/webhooks.yaml)."""

    kind: str
    path: str
    group: str
    version: str
    resource: str
    operations: tuple[str, ...] = ("CREATE",)


_MUTATING, _VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
ADMISSIONS = (
    Admission(_MUTATING, "/jobs/mutate", "batch.volcano.sh", "v1alpha1", "jobs"),
    Admission(_VALIDATING, "/jobs/validate", "batch.volcano.sh", "v1alpha1", "jobs", ("CREATE", "UPDATE")),
    Admission(_MUTATING, "/podgroups/mutate", "scheduling.volcano.sh", "v1beta1", "podgroups"),
    Admission(_MUTATING, "/pods/mutate", "", "v1", "pods"),
    Admission(_VALIDATING, "/pods/validate", "", "v1", "pods"),
    Admission(_MUTATING, "/queues/mutate", "scheduling.volcano.sh", "v1beta1", "queues"),
    Admission(
        _VALIDATING, "/queues/validate", "scheduling.volcano.sh", "v1beta1", "queues", ("CREATE", "UPDATE", "DELETE")
    ),
)


def conf(
    extender: Mapping[str, Any] | None = None,
    *,
    actions: str = "enqueue, allocate, backfill",
    without: Sequence[str] = (),
    plugins: Sequence[Mapping[str, Any]] = (),
    claims: bool = False,
) -> dict[str, Any]:
    """Return the chart's scheduler configuration, with these actions, without some plugins, and with more `plugins`.

    `extender` has the arguments of the `extender` plugin, which is left out without them. Error caches of actions are
    off, because they would keep a node's refusal after its cause is gone. With `claims` the plugin `predicates`
    allocates ResourceClaims in Volcano 1.14; later versions always do.
    """
    tiers = [[_CLAIMS if claims and plugin["name"] == "predicates" else plugin for plugin in tier] for tier in _TIERS]
    tiers = [[plugin for plugin in tier if plugin["name"] not in without] for tier in tiers]
    tiers.append([*plugins, *([{"name": "extender", "arguments": extender}] if extender else [])])
    return {
        "actions": actions,
        "tiers": [{"plugins": tier} for tier in tiers if tier],
        "configurations": [
            {"name": name, "arguments": {"predicateErrorCacheEnable": False}}
            for name in ("allocate", "preempt", "reclaim")
        ],
    }


def extender(url: str, *, managed: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """Return the extender plugin's arguments with all verbs except predicate, which costs a call for each node."""
    arguments: dict[str, Any] = {
        "extender.urlPrefix": url,
        "extender.httpTimeout": "5s",
        "extender.prioritizeVerb": "prioritize",
        "extender.allocateFuncVerb": "allocate",
        "extender.deallocateFuncVerb": "deallocate",
        "extender.onSessionCloseVerb": "session-close",
        "extender.ignorable": True,
    }
    if managed:
        arguments["extender.managedResources"] = list(managed)
    return {**arguments, **{f"extender.{name}": value for name, value in changes.items()}}


async def install(client: api.Api, crds: pathlib.Path, *, port: int, authority: bytes) -> None:
    """Create the namespace, the CRDs and the webhook configurations, with `port` on loopback."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await client.create(namespace)
    for document in _documents(crds):
        await client.create(document)
    for admission in ADMISSIONS:
        await client.create(_configuration(admission, port, authority))


def _documents(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.yaml")):
        yield from yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)  # libyaml: the Job CRD has 228 KB


def _configuration(admission: Admission, port: int, authority: bytes) -> dict[str, Any]:
    verb = admission.path.strip("/").replace("/", "-")
    not_system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE, "kube-system"]}
    webhook = {
        "name": f"{verb}.volcano.sh",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}{admission.path}",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "failurePolicy": "Fail",
        "namespaceSelector": {"matchExpressions": [not_system]},
        "rules": [
            {
                "apiGroups": [admission.group],
                "apiVersions": [admission.version],
                "operations": list(admission.operations),
                "resources": [admission.resource],
            }
        ],
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 10,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": admission.kind,
        # vc-webhook-manager looks for this very name and waits until it is there
        "metadata": {"name": f"volcano-admission-service-{verb}"},
        "webhooks": [webhook],
    }
