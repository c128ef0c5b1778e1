"""Rules about the interfaces that NCCL, Gloo, TensorPipe and Open MPI use beside the rails."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_SOCKET = "NCCL_SOCKET_IFNAME"
_POD_IDENTITY = "pod-id-link0"  # of EKS Pod Identity on each node, with the address 169.254.170.23
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
    context = ranks.fabric_context
    rails = lists.select_interfaces(setting.text, context.rail_interfaces)
    if rails and rails != (context.primary,):
        yield (
            f"selects {', '.join(rails)}, a rail: bootstrap and the RDMA handshake would run on it; "
            f"write ={ranks.fabric_context.primary}"
        )


def _check_link_local(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    is_on_node = bool(setting.value) and ranks.host_network and settings.is_on_efa(ranks)
    if is_on_node and lists.select_interfaces(setting.text, (_POD_IDENTITY,)):
        yield (
            f"also selects {_POD_IDENTITY}, which nodes with EKS Pod Identity have: its address is the same on all, "
            f"so ranks cannot connect; exclude {_POD_IDENTITY} too"
        )


def _check_unset(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    rails = ranks.fabric_context.rail_interfaces
    if rails and ranks.has_ranks and _SOCKET not in ranks.effective:
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
    rule_types.Rule("N17", frozenset({_SOCKET}), _check_absent),
    rule_types.Rule("N18", frozenset({_SOCKET}), _check_rail),
    rule_types.Rule("N19", needs=("fabric_context.rail_interfaces",), check_ranks=_check_unset),
    rule_types.Rule("N20", frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}), _check_plain),
    rule_types.Rule("N68", frozenset({_SOCKET}), _check_link_local),
    rule_types.Rule("N54", frozenset(f"{family}_include" for family in _OPEN_MPI), _check_open_mpi),
)
