"""C10: a claim of a pod that no container uses."""

from collections.abc import Iterator

from railwright.fabric.lint import claim_types, pod_claim_types, rule_types


def _check(ctx: pod_claim_types.PodClaimContext) -> Iterator[claim_types.ClaimViolation]:
    used = ctx.list_used()
    for index, entry in enumerate(ctx.spec.resource_claims or ()):
        if entry.name not in used:
            yield claim_types.ClaimViolation(
                f"no container uses the claim {entry.name}: its devices are allocated and stay idle; add "
                f"resources.claims: [{{name: {entry.name}}}] to the container, or remove the claim",
                ("resourceClaims", index),
            )


_ENTRY = {"name": "rdma", "resourceClaimTemplateName": "rdma"}

RULE = pod_claim_types.PodClaimRule(
    code="C10",
    name="claim-without-use",
    severity=rule_types.Severity.WARNING,
    title="No container uses a claim of the pod",
    explanation=(
        "spec.resourceClaims makes kube-scheduler allocate the devices for the pod. Only containers that name the "
        "claim in resources.claims can open them."
    ),
    source='Kubernetes documentation, "Allocate devices to workloads with DRA"',
    good=pod_claim_types.PodClaimExample(
        {
            "containers": [{"name": "pytorch", "resources": {"claims": [{"name": "rdma"}]}}],
            "resourceClaims": [_ENTRY],
        }
    ),
    bad=pod_claim_types.PodClaimExample({"containers": [{"name": "pytorch"}], "resourceClaims": [_ENTRY]}),
    check=_check,
)
