"""C02: an attribute that is read without has()."""

from collections.abc import Iterator

from railwright.fabric.claims import selectors
from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for _, request, kind, path in ctx.list_kinds():
        for expression in kind.expressions:
            for attribute in selectors.list_unguarded(expression):
                domain, _, name = attribute.rpartition("/")
                yield claim_types.ClaimViolation(
                    f"request {request.name} reads {attribute} without has(): if a device of the class lacks it, "
                    f'the pod is not scheduled; begin with has(device.attributes["{domain}"].{name}) &&',
                    path,
                )


RULE = claim_types.ClaimRule(
    code="C02",
    name="attribute-without-test",
    severity=rule_types.Severity.WARNING,
    title="An attribute is read without has()",
    explanation=(
        "Attributes are optional. Reading one that a device lacks is an error of CEL, and kube-scheduler then "
        "schedules the pod on no node, even if other nodes have the device. A DeviceClass that excludes such "
        "devices hides it."
    ),
    source=(
        "kubernetes-sigs/dranet examples/azure_aks_examples/gb300/resource-claim-template.yaml, "
        "examples/oci_oke_examples/BM.GPU.GB200-v3.4/resource-claim-template.yaml"
    ),
    good=claim_examples.build_devices(claim_examples.RAIL),
    bad=claim_examples.build_devices(
        claim_examples.build_request("rail0", "dranet", 'device.attributes["dra.net"].rdmaDevice == "mlx5_0"')
    ),
    check=_check,
)
