"""C11: a pod names a template that is not among the templates in the files."""

from collections.abc import Iterator

from railwright.fabric.claims import own_claims
from railwright.fabric.lint import claim_examples, claim_types, pod_claim_types, rule_types


def _check(ctx: pod_claim_types.PodClaimContext) -> Iterator[claim_types.ClaimViolation]:
    """Report nothing if the files have no template: these may be in the cluster."""
    for index, entry in enumerate(ctx.spec.resource_claims or ()):
        template = entry.resource_claim_template_name
        if not template or template in ctx.templates or not ctx.templates or own_claims.is_own_name(template):
            continue
        yield claim_types.ClaimViolation(
            f"the files have no ResourceClaimTemplate {template}, but {', '.join(sorted(ctx.templates)[:3])}: unless "
            "the namespace has it, the pod stays Pending; correct the name, or add the template",
            ("resourceClaims", index, "resourceClaimTemplateName"),
        )


_POD = {
    "containers": [{"name": "pytorch", "resources": {"claims": [{"name": "rdma"}]}}],
    "resourceClaims": [{"name": "rdma", "resourceClaimTemplateName": "one-nic"}],
}
_DEVICES = claim_examples.build_devices(claim_examples.RAIL)

RULE = pod_claim_types.PodClaimRule(
    code="C11",
    name="template-not-in-files",
    severity=rule_types.Severity.WARNING,
    title="The template of a claim is not in the files",
    explanation=(
        "A pod waits for its ResourceClaimTemplate without an error at its creation. The rule compares names with the "
        "templates in the files that are checked together, and reports nothing if there are none."
    ),
    source="Kubernetes, pkg/controller/resourceclaim: the claim is generated when the template exists",
    good=pod_claim_types.PodClaimExample(_POD, {"one-nic": _DEVICES}),
    bad=pod_claim_types.PodClaimExample(_POD, {"1-nic": _DEVICES}),
    check=_check,
)
