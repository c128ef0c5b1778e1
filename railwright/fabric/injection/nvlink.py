"""Gives the pods of a gang a channel of one ComputeDomain, so that their GPUs share memory by NVLink across nodes.

NVIDIA's DRA driver runs an IMEX domain for each ComputeDomain, on the nodes of the pods that claim a channel of it. It
writes the ResourceClaimTemplate that the ComputeDomain names. Admission writes nothing: pods name the template, and
`webhook.claim_templates` creates the ComputeDomain for the pods that wait. A node has one channel to give for a
ComputeDomain (DeviceClass `compute-domain-default-channel.nvidia.com`), so only pods that take all GPUs of a node get
one.
"""

from railwright.fabric import names, views
from railwright.fabric.claims import own_claims
from railwright.fabric.injection import accelerators, applied_pod, claim_requests, context, pod_changes
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

ENTRY = "nvlink"  # in the record


def join_domain(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Name the template of the gang's ComputeDomain in the pod, and use the claim in the containers of the ranks.

    Raises RefusedError if another claim of the pod has the name.
    """
    template = name_domain(pod, ctx)
    if not template:
        return pod_changes.EMPTY
    channels = claim_requests.list_channels(pod, ctx)
    if user_claim := next((name for name, named in channels.items() if not own_claims.is_channel(named)), ""):
        skipped = reasons.make(AdmissionCode.OWN_CHANNEL, claim=user_claim)
        return pod_changes.Contribution(skipped={ENTRY: skipped})
    if not _takes_node(pod, ctx):
        skipped = reasons.make(AdmissionCode.CHANNEL_NEEDS_NODE, limit=str(ctx.fabric.gpus_per_node))
        return pod_changes.Contribution(skipped={ENTRY: skipped}, warnings=(skipped,))
    existing = own_claims.find_channel(pod)
    claim_requests.check_names(pod, (names.CHANNEL_CLAIM,), (names.CHANNEL_CLAIM,) if existing else ())
    reason = f"NVLink across the nodes of the gang in fabric {ctx.fabric_name}"
    changes: list[pod_changes.Change] = []
    if existing is None or existing.template != template:
        index = existing.position if existing else None
        changes.append(
            pod_changes.SetClaim(entry=ENTRY, reason=reason, name=names.CHANNEL_CLAIM, template=template, index=index)
        )
    for target in ctx.targets:
        resources = pod.container(target).resources
        if resources is None or names.CHANNEL_CLAIM not in [claim.name for claim in resources.claims]:
            changes.append(
                pod_changes.UseClaim(entry=ENTRY, reason=reason, container=target, claim=names.CHANNEL_CLAIM)
            )
    return pod_changes.Contribution(changes=tuple(changes), entries=(ENTRY,))


def name_domain(pod: views.Pod, ctx: context.InjectionContext) -> str:
    """Return the name of the ComputeDomain of the pod's gang, "" if the pod gets none."""
    nvlink = ctx.fabric.nvlink
    if nvlink is None or nvlink.compute_domain == "none" or not ctx.role.rails or "devices" in ctx.options.skip:
        return ""
    gang = claim_requests.find_gang(pod, ctx.known.namespace)
    return own_claims.name_channel(ctx.known.namespace, gang) if gang else ""


def _takes_node(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> bool:
    """True if the pod takes all GPUs of its node, requested or in claims. True if the policy does not name a number."""
    limit = ctx.fabric.gpus_per_node
    return limit is None or accelerators.count_at_once(pod, ctx.document.accelerators) >= limit
