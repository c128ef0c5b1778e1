"""C03: a template that names one GPU or one NUMA node."""

from collections.abc import Iterator

from railwright.fabric.claims import selectors
from railwright.fabric.lint import claim_examples, claim_types, rule_types

_NAMES = ("pciBusID", "numaNode")


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for _, request, kind, path in ctx.list_kinds():
        if not ctx.is_template:
            continue
        attributes = [name for expression in kind.expressions for name in selectors.list_references(expression)]
        for attribute in dict.fromkeys(attributes):
            if attribute.rpartition("/")[2] in _NAMES:
                yield claim_types.ClaimViolation(
                    f"request {request.name} names devices by {attribute}, so that a second pod of this template finds "
                    "them taken on each node; pair GPUs and NICs by a constraint, or let railwright write the claims",
                    path,
                )


RULE = claim_types.ClaimRule(
    code="C03",
    name="devices-of-one-pod",
    severity=rule_types.Severity.WARNING,
    title="A template names the PCI address or NUMA node of its devices",
    explanation=(
        "Each claim of the template then asks for the same devices of a node, so that few pods fit on it "
        "while its other devices are idle. It is written where pcieRoot does not pair GPUs and NICs; `pairBy: "
        "nodeShape` does."
    ),
    source=("kubernetes-sigs/dranet examples/azure_aks_examples/gb300/resource-claim-template.yaml"),
    good=claim_examples.build_devices(claim_examples.GPU, claim_examples.RAIL),
    bad=claim_examples.build_devices(
        claim_examples.build_request(
            "gpu0",
            "gpu.nvidia.com",
            'has(device.attributes["resource.kubernetes.io"].pciBusID)'
            ' && device.attributes["resource.kubernetes.io"].pciBusID == "0008:06:00.0"',
        )
    ),
    check=_check,
)
