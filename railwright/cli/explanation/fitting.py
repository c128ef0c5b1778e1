"""Tells which gangs of a manifest never fit the nodes of a cluster, with the assessment that `gangs` shows.

The gangs are assessed as if nothing else ran there, so that only nodes, networks and device classes are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from extender import state as states
from railwright.cli import cluster_access, policy_sources
from railwright.cli.explanation import previews
from railwright.cluster import client as clients
from railwright.cluster import resources
from railwright.fabric import views
from railwright.fabric.overview import gang_assessment
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
from railwright.fabric.workloads import membership
from webhook import reviews

_KINDS = (resources.NODES, resources.NADS, resources.HYPER_NODES, resources.DEVICE_CLASSES)
_MAX_PODS = 20_000  # of a template
Objects = Mapping[str, Sequence[Any]]  # by the kinds of a snapshot


async def add_warnings_by_cluster(
    client: clients.Client, shown: Sequence[previews.AdmissionPreview]
) -> Sequence[previews.AdmissionPreview]:
    """Add the warnings of `add_warnings` for the nodes and the policy of a cluster to the previews.

    The previews stay unchanged if the caller may not read nodes or the policy. Raises ClusterError.
    """
    objects: dict[str, Sequence[Any]] = {}
    for kind in _KINDS:  # the nodes first
        objects[kind.snapshot_kind] = await cluster_access.list_allowed(client, kind.path, kind.view) or ()
        if not objects[resources.NODES.snapshot_kind]:
            return shown
    policy = await policy_sources.find_readable(client)
    return shown if policy is None else add_warnings(shown, policy, objects)


def add_warnings(
    shown: Sequence[previews.AdmissionPreview], policy: model.Policy, objects: Objects
) -> Sequence[previews.AdmissionPreview]:
    """Return the previews, with a warning on the first of each object whose gang never fits.

    Gangs with rails in claims are left out: their devices are counted by claims, which do not exist yet.
    """
    if not objects.get(resources.NODES.snapshot_kind):
        return shown
    state = states.State()
    for spec in states.list_watches(state):
        if spec.kind in _KINDS:
            spec.sink.replace(objects.get(spec.kind.snapshot_kind, ()))
    assessor = gang_assessment.Assessor(state.cluster, lambda: policy, state.pools)
    pods: dict[str, list[views.Pod]] = {}  # by their owners
    for preview in shown:
        fabric = policy.document.fabrics.get(preview.fabric)
        is_injected = preview.outcome in (reviews.PATCHED, reviews.ALLOWED) and not preview.message
        if is_injected and fabric is not None and fabric.claims is None:
            pods.setdefault(preview.template.owner, []).extend(_build_pods(preview))
    warnings: dict[str, Sequence[reason.Reason]] = {}
    for owner, created in pods.items():
        state.cluster.replace_pods(created)
        first_pods = {pod.gang: pod for pod in list(state.cluster.pods.values())[::-1]}
        assessments = [assessor.assess(assessor.list_members(pod)) for pod in first_pods.values()]
        warnings[owner] = [
            why for assessment in assessments for why in assessment.why if why.code is PlacementCode.CAPACITY_NEVER
        ]
    return [
        msgspec.structs.replace(preview, warnings=(*preview.warnings, *warnings.pop(preview.template.owner, ())))
        for preview in shown
    ]


def _build_pods(preview: previews.AdmissionPreview) -> Iterator[views.Pod]:
    """Yield the pods of one gang that the controller creates from a template, after admission."""
    pod, template = msgspec.convert(preview.after, views.Pod), preview.template
    owners = None
    if template.workload is not None and not membership.find_gang(pod):  # then its owner is the gang
        owners = [views.OwnerReference(kind=template.workload["kind"], name=template.owner, controller=True)]
    for index in range(min(template.gang_pods or 1, _MAX_PODS)):
        name = f"{template.owner}/{template.part}/{index}"
        metadata = msgspec.structs.replace(pod.metadata, name=name, uid=name, owner_references_or_none=owners)
        yield msgspec.structs.replace(pod, metadata=metadata)
