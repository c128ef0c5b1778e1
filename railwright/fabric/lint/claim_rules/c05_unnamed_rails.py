"""C05: NICs without a name."""

from collections.abc import Iterator

from railwright.fabric.claims import selectors
from railwright.fabric.lint import claim_examples, claim_types, rule_types

# attributes by which a template can name a rail
_IDENTITIES = frozenset(
    {"rdmaDevice", "pciAddress", "pciBusID", "pcieRoot", "ifName", "resourceName", "PFName", "pfPciAddress", "deviceID"}
)


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for _, request, kind, path in ctx.list_kinds():
        if not ctx.is_template or not claim_types.is_nic(kind) or kind.allocation_mode == "All":
            continue
        attributes = [name for expression in kind.expressions for name in selectors.list_references(expression)]
        if not any(name.rpartition("/")[2] in _IDENTITIES for name in attributes):
            yield claim_types.ClaimViolation(
                f"request {request.name} names no rail: pods of one gang get different rails, which cannot reach each "
                "other where rails are separate networks; select one rail for each request",
                path,
            )


RULE = claim_types.ClaimRule(
    code="C05",
    name="unnamed-rails",
    severity=rule_types.Severity.WARNING,
    title="NICs of a template are not named",
    explanation=(
        "The scheduler takes the first devices that fit. Which these are depends on what other pods hold, on "
        "the order of devices in slices, and on whether the pod is the first of its node. The pods of a gang "
        "then have different rails. It does not matter if a pod takes all rails of its node, or if all rails "
        "reach each other."
    ),
    source=(
        "ai-dynamo/dynamo pull request 13596; kubernetes-sigs/dranet examples/aws_eks_examples/gpu- "
        "efa/resource-claim-template.yaml"
    ),
    good=claim_examples.build_devices(claim_examples.RAIL),
    bad=claim_examples.build_devices(claim_examples.build_request("nic", "dranet", count=2)),
    check=_check,
)
