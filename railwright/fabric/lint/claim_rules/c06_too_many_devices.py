"""C06: more devices than a claim may have."""

from collections.abc import Iterator

from railwright.fabric.claims import drivers
from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    kinds = [request.preferred for request in ctx.devices.requests]
    total = sum(kind.count for kind in kinds if kind is not None and kind.allocation_mode != "All")
    if total > drivers.MAX_DEVICES:
        yield claim_types.ClaimViolation(
            f"requests {total} devices, but a claim has at most {drivers.MAX_DEVICES}: the API server admits it, and "
            "its pods stay Pending; split it into claims along pairs of GPUs and NICs",
            ("requests",),
        )


RULE = claim_types.ClaimRule(
    code="C06",
    name="too-many-devices",
    severity=rule_types.Severity.ERROR,
    title="More than 32 devices in a claim",
    explanation=(
        "A claim has at most 32 allocated devices. The API server checks the number of requests but not the "
        "sum of their counts, so that the template is admitted and its pods fail to be scheduled. Constraints "
        "do not reach across claims: devices of a pair must be in one."
    ),
    source=("resource.k8s.io/v1 AllocationResultsMaxSize; Amazon EKS p5.48xlarge has 8 GPUs and 32 EFA devices"),
    good=claim_examples.build_devices(claim_examples.GPU, claim_examples.RAIL),
    bad=claim_examples.build_devices(
        claim_examples.build_request("gpu", "gpu.nvidia.com", count=8),
        claim_examples.build_request("efa", "efa.networking.k8s.aws", count=32),
    ),
    check=_check,
)
