"""C08: kubelet does not align CPUs with claims."""

from collections.abc import Iterator

from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    kinds = [request.preferred for request in ctx.devices.requests]
    if any(kind is not None and claim_types.find_driver(kind) == claim_types.GPU_DRIVER for kind in kinds):
        yield claim_types.ClaimViolation(
            "kubelet gets no topology hints for claims: CPUs and memory of the pod may be on another NUMA node than "
            "its GPUs; bind the processes to CPUs by the GPU's NUMA node in the pod",
            ("requests",),
        )


RULE = claim_types.ClaimRule(
    code="C08",
    name="no-topology-hints",
    severity=rule_types.Severity.INFO,
    title="CPUs are not aligned with GPUs of claims",
    explanation=(
        "Device plugins tell kubelet's topology manager the NUMA node of each device, DRA drivers do not. The "
        "static CPU manager then chooses CPUs without knowing the GPUs, whatever the policy of the topology "
        "manager."
    ),
    source=("kubernetes/website pull request 56761"),
    good=claim_examples.build_devices(claim_examples.RAIL),
    bad=claim_examples.build_devices(claim_examples.GPU),
    check=_check,
)
