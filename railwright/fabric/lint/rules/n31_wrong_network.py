"""N31: NCCL_NET names a network the image or the fabric does not have."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint import effective_values, hardware, rule_types, settings
from railwright.fabric.policy import model as policies

_NAME = "NCCL_NET"
_EFA = frozenset({policies.Transport.EFA})
# The fabrics that a network can use. Nothing is known about other names.
_CARRIES: Mapping[str, frozenset[policies.Transport]] = {
    "ib": effective_values.VERBS,
    "ibext": effective_values.VERBS,  # HPC-X; its names carry a version: IBext_v11
    "aws libfabric": _EFA,  # before aws-ofi-nccl 1.12
    "libfabric": _EFA,
    "ofi": _EFA,
    "gib": frozenset({policies.Transport.ROCE}),  # Google
    "socket": frozenset({policies.Transport.TCP}),
}
_PLUGINS = frozenset({"ibext", "aws libfabric", "libfabric", "ofi", "gib"})


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting = ctx.get_setting(_NAME)
    if setting is None or not setting.value:
        return
    network = _strip_version(settings.strip_quotes(setting.value))
    if network in _PLUGINS and ctx.get_value("NCCL_NET_PLUGIN") == "none":
        yield settings.build_violation(
            setting,
            "is the network of a plugin, and NCCL_NET_PLUGIN=none keeps plugins out: NCCL fails at start; "
            "remove NCCL_NET_PLUGIN",
        )
    elif (problem := _explain_misfit(network, ctx)) is not None:
        yield settings.build_violation(
            setting, f"{problem}; write {effective_values.choose_network(ctx)}, or remove it"
        )


def _explain_misfit(network: str, ctx: rule_types.RankContext) -> str | None:
    transport = policies.Transport.EFA if effective_values.is_on_efa(ctx) else ctx.fabric_context.transport
    if network == "socket" and transport is None and effective_values.is_rdma_requested(ctx):
        return f"holds NCCL to TCP, and the container requests {', '.join(sorted(hardware.find_rdma_devices(ctx)))}"
    if transport is None or transport in _CARRIES.get(network, frozenset(policies.Transport)):
        return None
    return f"is not a network of this fabric ({transport})"


def _strip_version(name: str) -> str:
    return name.casefold().partition("_")[0]


RULE = rule_types.Rule(
    code="N31",
    name="wrong-network",
    severity=rule_types.Severity.ERROR,
    title="NCCL_NET names a missing network, or not the fabric's",
    explanation=(
        "NCCL_NET names the only network that NCCL may use. Socket on an RDMA fabric uses TCP and leaves RDMA "
        "devices idle. IB on EFA finds nothing and fails, as does a plugin's network with NCCL_NET_PLUGIN=none. "
        "The plugins of an image are not known, so other names are accepted."
    ),
    source="NVIDIA/nccl src/plugin/net.cc; aws-ofi-nccl doc/efa-env-var.md",
    good=(
        rule_types.build_example(
            "the fabric's network",
            settings.build_env(NCCL_NET="IB"),
            rule_types.FabricContext(transport=policies.Transport.ROCE),
        ),
        rule_types.build_example(
            "the plugin of EFA", settings.build_env(NCCL_NET="AWS Libfabric"), devices={"vpc.amazonaws.com/efa": 32}
        ),
        rule_types.build_example(
            "HPC-X on InfiniBand",
            settings.build_env(NCCL_NET="IBext_v11"),
            rule_types.FabricContext(transport=policies.Transport.INFINIBAND),
        ),
        rule_types.build_example("Socket, and no RDMA", settings.build_env(NCCL_NET="Socket")),
    ),
    bad=(
        rule_types.build_example(
            "Socket with RDMA devices", settings.build_env(NCCL_NET="Socket"), devices={"rdma/hca_shared_devices": 1}
        ),
        rule_types.build_example(
            "IB on EFA", settings.build_env(NCCL_NET="IB"), rule_types.FabricContext(transport=policies.Transport.EFA)
        ),
        rule_types.build_example("a disabled plugin", settings.build_env(NCCL_NET="gIB", NCCL_NET_PLUGIN="none")),
    ),
    check=_check,
)
