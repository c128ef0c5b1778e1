"""C01: a constraint over several devices of a kind."""

from collections import Counter
from collections.abc import Iterator

from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for index, constraint in enumerate(ctx.devices.constraints):
        counts: Counter[str] = Counter()
        for request in ctx.list_covered(constraint.requests):
            if request.preferred is not None:
                counts[request.preferred.device_class_name] += request.preferred.count
        several = [f"{count} devices of {name}" for name, count in counts.items() if count > 1]
        if constraint.match_attribute and len(several) > 1:
            yield claim_types.ClaimViolation(
                f"one constraint asks that {' and '.join(several)} share one value of {constraint.match_attribute}; "
                "write one request for each device, and one constraint for each pair",
                ("constraints", index),
            )


RULE = claim_types.ClaimRule(
    code="C01",
    name="one-constraint-for-pairs",
    severity=rule_types.Severity.WARNING,
    title="One constraint over several GPUs and NICs",
    explanation=(
        "A constraint holds for all devices of its requests together. With two GPUs and two NICs it asks that "
        "all four share one PCIe root, which most nodes do not have, so that the pod stays Pending. Right is one "
        "request for each device, and one constraint for each pair."
    ),
    source=(
        "kubernetes-sigs/dranet examples/demo_nvidia_dranet/resourceclaims.yaml; k8snetworkplumbingwg/dra- "
        "driver-sriov demo/resource-alignment/resource-alignment.yaml"
    ),
    good=claim_examples.build_devices(claim_examples.GPU, claim_examples.RAIL, pair_by=claim_examples.PCIE_ROOT),
    bad=claim_examples.build_devices(
        claim_examples.build_request("gpu", "gpu.nvidia.com", count=2),
        claim_examples.build_request("nic", "dranet", count=2),
        pair_by=claim_examples.PCIE_ROOT,
    ),
    check=_check,
)
