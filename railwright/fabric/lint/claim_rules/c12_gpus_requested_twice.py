"""C12: GPUs by a claim and by an extended resource."""

from collections.abc import Iterator

from railwright.fabric import views
from railwright.fabric.lint import claim_examples, claim_types, pod_claim_types, rule_types


def _check(ctx: pod_claim_types.PodClaimContext) -> Iterator[claim_types.ClaimViolation]:
    templates = {entry.name: entry.resource_claim_template_name for entry in ctx.spec.resource_claims or ()}
    for container, path in ctx.list_containers():
        if container.resources is None:
            continue
        for claim in container.resources.claims:
            template = templates.get(claim.name, "")
            devices = ctx.templates.get(template)
            resource = _find_resource(container.resources, ctx.accelerators)
            if resource and devices is not None and _has_gpus(devices):
                yield claim_types.ClaimViolation(
                    f"container {container.name} requests {resource} and gets GPUs by the template {template} of claim "
                    f"{claim.name}: the pod takes both; remove {resource}, or the GPUs of the template",
                    (*path, "resources"),
                )


def _find_resource(requirements: views.ResourceRequirements, accelerators: tuple[str, ...]) -> str:
    """Return the accelerator that a container requests; "" if it requests none, or "0"."""
    amounts = {**requirements.requests, **requirements.limits}
    return next((name for name in accelerators if str(amounts.get(name, "0")) != "0"), "")


def _has_gpus(devices: claim_types.ClaimedDevices) -> bool:
    kinds = (request.preferred for request in devices.requests)
    return any(kind is not None and claim_types.find_driver(kind) == claim_types.GPU_DRIVER for kind in kinds)


_TEMPLATES = {"pair": claim_examples.build_devices(claim_examples.GPU, claim_examples.RAIL)}
_ENTRIES = [{"name": "pair", "resourceClaimTemplateName": "pair"}]

RULE = pod_claim_types.PodClaimRule(
    code="C12",
    name="gpus-requested-twice",
    severity=rule_types.Severity.ERROR,
    title="GPUs are requested by a claim and as an extended resource",
    explanation=(
        "The pod then takes the GPUs of the claim and others besides. On nodes where a DeviceClass maps the resource, "
        "both come from the same driver; on nodes with one driver only, the pod stays Pending."
    ),
    source='KEP-5004; Kubernetes documentation, "Extended resource allocation by DRA"',
    good=pod_claim_types.PodClaimExample(
        {
            "containers": [{"name": "pytorch", "resources": {"claims": [{"name": "pair"}]}}],
            "resourceClaims": _ENTRIES,
        },
        _TEMPLATES,
    ),
    bad=pod_claim_types.PodClaimExample(
        {
            "containers": [
                {"name": "pytorch", "resources": {"claims": [{"name": "pair"}], "limits": {"nvidia.com/gpu": 1}}}
            ],
            "resourceClaims": _ENTRIES,
        },
        _TEMPLATES,
    ),
    check=_check,
)
