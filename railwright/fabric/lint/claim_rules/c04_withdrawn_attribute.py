"""C04: an attribute that is gone while a pod holds the device."""

from collections.abc import Iterator

from railwright.fabric.claims import drivers, selectors
from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for _, request, kind, path in ctx.list_kinds():
        attributes = [name for expression in kind.expressions for name in selectors.list_references(expression)]
        for attribute in dict.fromkeys(attributes):
            if attribute in drivers.WITHDRAWN:
                yield claim_types.ClaimViolation(
                    f"request {request.name} selects by {attribute}, which dranet withdraws while a pod holds the "
                    "device, and which may differ by node; use dra.net/rdmaDevice or dra.net/pciAddress",
                    path,
                )


RULE = claim_types.ClaimRule(
    code="C04",
    name="withdrawn-attribute",
    severity=rule_types.Severity.WARNING,
    title="A device is selected by its interface or address",
    explanation=(
        "dranet reads these attributes from the interface of the host. While a pod holds the device, its "
        "interface is in the pod, and the slice has them no more. Whether a device is free follows from "
        "claims, never from slices."
    ),
    source=(
        "kubernetes-sigs/dranet examples/oke-bm-gpu-gb200-rocev2-dranet/resource-claim-template.yaml "
        "(ifName), openshift-psap/dra-rail-admission-webhook (ipv4)"
    ),
    good=claim_examples.build_devices(claim_examples.RAIL),
    bad=claim_examples.build_devices(
        claim_examples.build_request(
            "rail0",
            "dranet",
            'has(device.attributes["dra.net"].ifName) && device.attributes["dra.net"].ifName == "rdma3"',
        )
    ),
    check=_check,
)
