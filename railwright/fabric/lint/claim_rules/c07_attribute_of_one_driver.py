"""C07: a constraint on an attribute that only one driver publishes."""

from collections.abc import Iterator

from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for index, constraint in enumerate(ctx.devices.constraints):
        kinds = [kind for request in ctx.list_covered(constraint.requests) if (kind := request.preferred)]
        has_gpu = any(claim_types.find_driver(kind) == claim_types.GPU_DRIVER for kind in kinds)
        domain = constraint.match_attribute.rpartition("/")[0]
        if (
            has_gpu
            and any(claim_types.is_nic(kind) for kind in kinds)
            and domain != "resource.kubernetes.io"
            and domain
        ):
            yield claim_types.ClaimViolation(
                f"{constraint.match_attribute} is an attribute of one driver: devices of the other lack it, so that no "
                "pair has it in common and the pod stays Pending; use resource.kubernetes.io/pcieRoot or numaNode",
                ("constraints", index, "matchAttribute"),
            )


RULE = claim_types.ClaimRule(
    code="C07",
    name="attribute-of-one-driver",
    severity=rule_types.Severity.ERROR,
    title="GPUs and NICs are paired by an attribute of one driver",
    explanation=(
        "A constraint needs an attribute with the same qualified name on all its devices. dranet publishes "
        "`dra.net/numaNode`, the GPU driver `resource.kubernetes.io/numaNode`: they are never equal. Where "
        "the PCIe roots differ too (AKS ND GB300, OKE GB200), no attribute pairs them; `railwright check` "
        "says so with the node."
    ),
    source=("dra-driver-nvidia-gpu issue 1123; Kubernetes KEP-6080"),
    good=claim_examples.build_devices(claim_examples.GPU, claim_examples.RAIL, pair_by=claim_examples.PCIE_ROOT),
    bad=claim_examples.build_devices(claim_examples.GPU, claim_examples.RAIL, pair_by="dra.net/numaNode"),
    check=_check,
)
