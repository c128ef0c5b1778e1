"""No rule reports an error or a warning about the variables that railwright derives, for any transport and facts."""

import hypothesis
from hypothesis import strategies as st

from railwright.fabric.lint import engine, rule_types
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model as policies

RANGES = ("192.168.0.0/16", "fd00::/8")


def maybe(least, most):
    return st.one_of(st.none(), st.integers(least, most))


FACTS = st.builds(
    policies.Nccl,
    forbid_tcp_fallback=st.booleans(),
    gid_index=maybe(-1, 15),
    traffic_class=maybe(-1, 255),
)


@st.composite
def draw_admitted(draw):
    """Return an injected container, on a site that matches its policy."""
    transport = draw(st.sampled_from(list(policies.Transport)))
    facts = draw(FACTS)
    ranged = {"address_range": draw(st.sampled_from(RANGES))} if draw(st.booleans()) else {}
    facts = policies.Nccl(**{name: getattr(facts, name) for name in facts.__struct_fields__} | ranged)
    count = draw(st.integers(1, 8)) if transport is not policies.Transport.PVRDMA else 1
    own, pooled, named = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    prefix = "erdma" if transport is policies.Transport.ERDMA else "mlx5"
    pool = draw(st.sampled_from(["rdma/hca_shared", "example.com/sriov_vf"]))
    resources = [pool if pooled else f"{pool}_{n}" for n in range(count)]
    rails = tuple(
        policies.Rail(
            name=f"rail{n}",
            network=f"prod/lan{n}" if own else None,
            resource=resources[n],
            device=f"{prefix}_{n}" if named else None,
        )
        for n in range(count)
    )
    security = policies.Security(capabilities=("IPC_LOCK",) if draw(st.booleans()) else ())
    fabric = policies.Fabric(transport=transport, rails=rails, nccl=facts, security=security)
    devices = tuple(f"{prefix}_{n}" for n in range(count))
    host_network = draw(st.booleans())
    derived = derive.derive_variables(derive.RankFacts(fabric, devices if draw(st.booleans()) else None, host_network))
    nets = tuple(f"net{n + 1}" for n in range(count)) if own and not host_network else ()
    site = rule_types.FabricContext(
        transport=transport,
        fabric=fabric,
        interfaces=None if host_network else ("eth0", *nets),
        rail_interfaces=nets,
        devices={"": devices},
        exclusive=rule_types.are_devices_exclusive(transport, frozenset(resources)),
    )
    held = {} if transport is policies.Transport.TCP else {name: resources.count(name) for name in resources}
    return rule_types.RankContext(
        "a rank",
        tuple(rule_types.Setting(variable.name, variable.value, f"env[{at}]") for at, variable in enumerate(derived)),
        site,
        accelerators=8,
        devices=held,
        capabilities=frozenset(security.capabilities),
        shared_memory=64 << 30,
        image="example.com/train:1",
    )


@hypothesis.given(draw_admitted())
def test_derived_variables_cause_no_warning_or_error(ranks):
    assert [f"{finding.code} {finding.message}" for finding in engine.check_ranks(ranks)] == []
