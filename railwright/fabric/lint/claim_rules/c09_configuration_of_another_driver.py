"""C09: configuration that no driver reads."""

from collections.abc import Iterator

from railwright.fabric.lint import claim_examples, claim_types, rule_types


def _check(ctx: claim_types.ClaimContext) -> Iterator[claim_types.ClaimViolation]:
    for index, config in enumerate(ctx.devices.config):
        if config.opaque is None:
            continue
        for request in ctx.list_covered(config.requests) if config.requests else ():
            driver = claim_types.find_driver(request.preferred) if request.preferred else None
            if driver is not None and driver != config.opaque.driver:
                yield claim_types.ClaimViolation(
                    f"the configuration for request {request.name} is for driver {config.opaque.driver}, but its "
                    f"devices are of {driver}, which ignores it; write {driver} and its form of parameters",
                    ("config", index, "opaque", "driver"),
                )


RULE = claim_types.ClaimRule(
    code="C09",
    name="configuration-of-another-driver",
    severity=rule_types.Severity.WARNING,
    title="Opaque configuration for another driver",
    explanation=(
        "A driver reads only the configuration with its own name; all others are ignored silently. The "
        "interface then keeps the name and MTU that it has on the host."
    ),
    source=("k8snetworkplumbingwg/dra-driver-sriov demo/single-vf-claim/single-vf.yaml has the form for its driver"),
    good=claim_examples.build_devices(
        claim_examples.RAIL,
        config=[{"requests": ["rail0"], "opaque": {"driver": "dra.net", "parameters": {"interface": {"mtu": 9000}}}}],
    ),
    bad=claim_examples.build_devices(
        claim_examples.RAIL,
        config=[{"requests": ["rail0"], "opaque": {"driver": "sriovnetwork.k8snetworkplumbingwg.io"}}],
    ),
    check=_check,
)
