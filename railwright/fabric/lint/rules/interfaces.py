"""Rules about the interfaces that NCCL, Gloo, TensorPipe and Open MPI use beside the rails."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_SOCKET = "NCCL_SOCKET_IFNAME"
_LOOPBACK = "lo"  # every network namespace has it
_OPEN_MPI = ("OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if", "PRTE_MCA_prte_if", "PRTE_MCA_oob_tcp_if")


def _check_absent(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    interfaces = ranks.fabric_context.interfaces
    if not setting.value or interfaces is None:
        return
    if not lists.select_interfaces(setting.text, (*interfaces, _LOOPBACK)):
        yield (
            f"selects no interface of the pod, which has {', '.join(interfaces)}: NCCL fails to start; "
            f"write ={ranks.fabric_context.primary}"
        )


def _check_rail(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value:
        return
    rails = lists.select_interfaces(setting.text, ranks.fabric_context.rail_interfaces)
    if rails:
        yield (
            f"selects {', '.join(rails)}, a rail: bootstrap and the RDMA handshake would run on it; "
            f"write ={ranks.fabric_context.primary}"
        )


def _check_unset(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    rails = ranks.fabric_context.rail_interfaces
    if rails and _SOCKET not in ranks.effective:
        yield rule_types.Violation(
            f"{_SOCKET} is not set, and the pod has {', '.join(rails)}: NCCL may choose a rail for bootstrap; "
            f"set it to ={ranks.fabric_context.primary}",
            _SOCKET,
        )


def _check_plain(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    value = setting.value or ""
    if "^" in value or "=" in value:
        plain = settings.quote(value.replace("^", "").replace("=", ""))
        name = ranks.fabric_context.primary if "^" in value else plain
        yield f"takes plain interface names only, without ^ and =; write {name}"


def _check_open_mpi(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    excluded = ranks.get_setting(f"{setting.name.removesuffix('_include')}_exclude")
    if excluded is not None:
        yield f"conflicts with {settings.format_setting(excluded)}, and Open MPI stops; remove one of the two"


RULES = (
    rule_types.Rule(
        code="N17",
        name="absent-interface",
        severity=rule_types.Severity.ERROR,
        title="NCCL_SOCKET_IFNAME selects no interface the pod has",
        explanation=(
            "If the variable is set and matches nothing, NCCL fails at start with 'Bootstrap : no socket interface "
            "found'. A pod has eth0 and the interfaces of its secondary networks, not those of its node, unless it "
            "uses the host's network."
        ),
        source="NVIDIA/nccl src/misc/socket.cc, observed on 2.30.7",
        variables=frozenset({_SOCKET}),
        check_setting=_check_absent,
    ),
    rule_types.Rule(
        code="N18",
        name="interface-is-a-rail",
        severity=rule_types.Severity.WARNING,
        title="NCCL_SOCKET_IFNAME selects a rail",
        explanation=(
            "The interface carries NCCL's bootstrap, the out-of-band handshake of RDMA and, with the TCP transport, "
            "the data. On a rail that is rail-only or lossless, this traffic may not reach the other pods, or may "
            "disturb the rail's own traffic."
        ),
        source="NVIDIA/nccl src/misc/socket.cc",
        variables=frozenset({_SOCKET}),
        check_setting=_check_rail,
    ),
    rule_types.Rule(
        code="N19",
        name="interface-unset",
        severity=rule_types.Severity.WARNING,
        title="NCCL_SOCKET_IFNAME is unset in a pod with secondary networks",
        explanation=(
            "If the variable is unset, NCCL prefers interfaces whose names begin with ib, then all but docker, lo and "
            "virbr. So every secondary network of the pod may be used for bootstrap, and for data by the TCP transport."
        ),
        source="NVIDIA/nccl src/misc/socket.cc",
        needs=("fabric_context.rail_interfaces",),
        check_ranks=_check_unset,
    ),
    rule_types.Rule(
        code="N20",
        name="plain-names-only",
        severity=rule_types.Severity.ERROR,
        title="GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME take plain names only",
        explanation=(
            "Gloo and TensorPipe use the text as the name of an interface. The marks of NCCL's grammar, copied from "
            "NCCL_SOCKET_IFNAME, match no interface, and process groups on CPU fail to start."
        ),
        source="PyTorch torch.distributed, common environment variables; facebookincubator/gloo",
        variables=frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}),
        check_setting=_check_plain,
    ),
    rule_types.Rule(
        code="N54",
        name="include-and-exclude",
        severity=rule_types.Severity.WARNING,
        title="Open MPI's interface lists, include and exclude, are both set",
        explanation=(
            "The two lists of a component are mutually exclusive, wherever they are set: one in the environment and "
            "one on the command line of mpirun count as both."
        ),
        source="NVIDIA/nccl networking troubleshooting guide; Open MPI documentation, TCP",
        variables=frozenset(f"{family}_include" for family in _OPEN_MPI),
        check_setting=_check_open_mpi,
    ),
)
