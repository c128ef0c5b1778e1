"""Rules about the network that NCCL uses: whether it is the fabric's, and whether the pod leaves it reachable.

Also those about the interfaces beside the rails, and about the GIDs of RoCE.
"""

import functools
import ipaddress
import re
from collections.abc import Iterator, Mapping

import msgspec

from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import integers, lists
from railwright.fabric.policy import model as policies

_NET, _PLUGIN, _DISABLE = "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"
_ROCE_ONLY = frozenset(
    {
        "NCCL_IB_ADDR_FAMILY",
        "NCCL_IB_ADDR_RANGE",
        "NCCL_IB_FIFO_TC",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_ROCE_VERSION_NUM",
        "NCCL_IB_TC",
    }
)
_AUTOMATIC = "-1"  # as if unset
_BUILT_IN = frozenset({"ib", "socket"})
# Each of these selects a network or a plugin, or turns off the plugin of HPC-X as well.
_EXPLICIT_CHOICES = (_NET, _PLUGIN, "NCCL_IBEXT_DISABLE")
_VERBS = rule_types.WITH_GIDS | {policies.Transport.INFINIBAND}  # transports of NCCL's own IB network
_EFA = frozenset({policies.Transport.EFA})
# The fabrics that a network can use. Nothing is known about other names.
_CARRIES: Mapping[str, frozenset[policies.Transport]] = {
    "ib": _VERBS,
    "ibext": _VERBS,  # HPC-X; its names carry a version: IBext_v11
    "aws libfabric": _EFA,  # before aws-ofi-nccl 1.12
    "libfabric": _EFA,
    "ofi": _EFA,
    "gib": frozenset({policies.Transport.ROCE}),  # Google
    "socket": frozenset({policies.Transport.TCP}),
}
_PLUGIN_NETWORKS = frozenset(_CARRIES) - _BUILT_IN
_VERBS_DEVICES = "/dev/infiniband"
_WITH_OWN_PLUGIN = "coreweave/nccl-tests"  # images whose environment names a network plugin


class _Shape(msgspec.Struct, frozen=True):
    """GPUs and EFA devices of a node."""

    gpus: int
    devices: int


# awslabs/awsome-distributed-ai micro-benchmarks/nccl-tests/kubernetes, by the instance type's label
_EFA_SHAPES: Mapping[str, _Shape] = {
    "p4d.24xlarge": _Shape(8, 4),
    "p4de.24xlarge": _Shape(8, 4),
    "p5.48xlarge": _Shape(8, 32),
    "p5e.48xlarge": _Shape(8, 32),
    "p5en.48xlarge": _Shape(8, 16),
    "p6-b200.48xlarge": _Shape(8, 8),
    "p6-b300.48xlarge": _Shape(8, 16),
    "p6e-gb200.36xlarge": _Shape(4, 4),
}


def _check_effect(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.value == _AUTOMATIC:
        return
    if rule_types.is_on_efa(ranks):
        yield "has no effect on EFA, which NCCL reaches through the libfabric plugin; remove it"
    elif ranks.fabric_context.transport is policies.Transport.INFINIBAND and setting.name in _ROCE_ONLY:
        yield "has no effect on native InfiniBand, only on RoCE; remove it"


def _check_disabled_rdma(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    named = ranks.get_value(_NET)
    by_plugin = rule_types.is_on_efa(ranks) or (named is not None and named.casefold() not in _BUILT_IN)
    if rule_types.parse_number(setting, ranks) and rule_types.is_rdma_requested(ranks) and not by_plugin:
        resources = ", ".join(sorted(ranks.rdma_devices))
        yield f"turns RDMA off, and the container requests {resources}; remove the variable, or the request"


def _check_required(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if (setting.value or "").casefold() == "ib" and rule_types.read_number(ranks, _DISABLE):
        yield "with NCCL_IB_DISABLE on there is no such network, and NCCL fails at start; remove one of the two"


def _check_only_switch(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not rule_types.parse_number(setting, ranks) or rule_types.is_on_efa(ranks):
        return
    if all(name not in ranks.effective for name in _EXPLICIT_CHOICES):
        yield (
            "does not stop a network plugin in the image (HPC-X in NGC images, AWS, Google); to hold NCCL to TCP set "
            "NCCL_NET=Socket as well"
        )


def _check_network(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value:
        return
    network = setting.text.casefold().partition("_")[0]  # without a version
    if network in _PLUGIN_NETWORKS and ranks.get_value(_PLUGIN) == "none":
        yield (
            "is the network of a plugin, and NCCL_NET_PLUGIN=none keeps plugins out: NCCL fails at start; "
            "remove NCCL_NET_PLUGIN"
        )
    elif (problem := _explain_misfit(network, ranks)) is not None:
        yield f"{problem}; write {rule_types.choose_network(ranks)}, or remove it"


def _explain_misfit(network: str, ranks: rule_types.RankContext) -> str | None:
    transport = policies.Transport.EFA if rule_types.is_on_efa(ranks) else ranks.fabric_context.transport
    if network == "socket" and transport is None and rule_types.is_rdma_requested(ranks):
        return f"holds NCCL to TCP, and the container requests {', '.join(sorted(ranks.rdma_devices))}"
    fabric = ranks.fabric_context.fabric
    if fabric is not None and network == (fabric.nccl.plugin.network or "").casefold():
        return None
    if transport is None or transport in _CARRIES.get(network, frozenset(policies.Transport)):
        return None
    return f"is not a network of this fabric ({transport})"


def _check_fallback(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    fabric = ranks.fabric_context.fabric
    is_forbidden = fabric is not None and fabric.nccl.forbid_tcp_fallback
    if is_forbidden and _NET not in ranks.effective and rule_types.is_rdma_requested(ranks):
        yield rule_types.Violation(
            f"{_NET} is not set, so NCCL may continue over TCP, which the policy forbids (forbidTcpFallback); set "
            f"{_NET}={rule_types.choose_network(ranks)}",
            _NET,
        )


def _check_verbs_on_efa(_: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if rule_types.is_on_efa(ranks):
        yield "is not for EFA and breaks on newer kernels; remove it"


def _check_efa_settings(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not rule_types.is_on_efa(ranks):
        return
    if setting.name == _PLUGIN and setting.text.casefold() == "none":
        yield "keeps out the plugin that drives EFA, so NCCL uses TCP without a message; remove it, or write ofi"
    if setting.name == "FI_PROVIDER" and setting.value and _excludes_efa(setting.text):
        yield "keeps libfabric from EFA, so NCCL uses TCP; remove it, or write efa"


def _excludes_efa(providers: str) -> bool:
    """True if a value of FI_PROVIDER leaves out EFA. Layered providers are written `efa;ofi_rxr`."""
    names = {name.strip() for part in providers.removeprefix("^").split(",") for name in part.split(";")}
    return ("efa" in names) == providers.startswith("^")


def _check_efa_mount(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ranks.mounts.get(_VERBS_DEVICES) == "hostPath" and rule_types.is_on_efa(ranks):
        yield rule_types.Violation(
            f"the container has EFA devices and mounts the node's {_VERBS_DEVICES}: on nodes that also have other RDMA "
            "devices libfabric finds no EFA, and NCCL uses TCP; remove the mount, the device plugin adds what is needed"
        )


def _check_instance_type(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    requested = ranks.devices.get(rule_types.EFA_RESOURCE, 0)
    shapes = {name: shape for name, shape in _EFA_SHAPES.items() if name in ranks.instance_types}
    fitting = {name: shape for name, shape in shapes.items() if requested <= shape.devices}
    if not requested or not shapes:
        return
    if not fitting and len(shapes) == len(ranks.instance_types):
        effect, bad = "the pod fits on no such node", shapes
    else:
        effect = "the others stay idle, because the pod has all GPUs of the node"
        bad = {
            name: shape
            for name, shape in fitting.items()
            if requested < shape.devices and ranks.accelerators == shape.gpus
        }
    amounts = {shape.devices for shape in (fitting or shapes).values()}
    fix = f"request {max(amounts)}" if len(amounts) == 1 or not fitting else "select types with one number of devices"
    for name, shape in bad.items():
        yield rule_types.Violation(
            f"the container requests {requested} {rule_types.EFA_RESOURCE} on {name}, which has {shape.devices}: "
            f"{effect}; {fix}",
            rule_types.EFA_RESOURCE,
        )


def _check_plugin_of_image(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    is_chosen = _PLUGIN in ranks.effective or _NET in ranks.effective
    if not is_chosen and _WITH_OWN_PLUGIN in (ranks.image or "") and rule_types.is_rdma_requested(ranks):
        yield rule_types.Violation(
            f"{_PLUGIN} is not set, and images of {_WITH_OWN_PLUGIN} set a plugin themselves, spcx since September "
            "2026; write none, or the plugin that is meant",
            _PLUGIN,
        )


class _Plugin(msgspec.Struct, frozen=True):
    """A network's plugin: where vendors mount it, and words in the names of images that have it."""

    network: re.Pattern[str]  # value of NCCL_NET
    owner: str
    paths: tuple[str, ...]
    images: tuple[str, ...]


_LIBFABRIC = _Plugin(
    re.compile("(aws )?libfabric|ofi", re.IGNORECASE),
    "aws-ofi-nccl",
    ("/opt/amazon", "/opt/aws-ofi-nccl"),
    ("aws", "efa", "ofi", "nvcr.io/nvidia/"),
)
_PLUGINS = (
    _LIBFABRIC,
    _Plugin(re.compile("gib", re.IGNORECASE), "Google's gIB", ("/usr/local/gib",), ("gib",)),
    _Plugin(
        re.compile("fastrak|gpudirecttcpx.*", re.IGNORECASE),
        "Google's GPUDirect-TCPX",
        ("/usr/local/nvidia", "/usr/local/tcpx", "/usr/local/fastrak", "/usr/local/library"),
        ("tcpx", "fastrak"),
    ),
)


def _check_plugin(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    plugin = next((plugin for plugin in _PLUGINS if plugin.network.fullmatch(setting.text)), None)
    fabric = ranks.fabric_context.fabric
    if fabric is not None and fabric.nccl.plugin.network == setting.text:
        return
    if plugin is None or ranks.image is None or _has_plugin(ranks, plugin, ranks.image):
        return
    yield (
        f"this network is of {plugin.owner}. No volume is mounted at {plugin.paths[0]}, and the image's name does not "
        "say that it has the plugin, without which NCCL fails at start; mount it, or remove the variable"
    )


def _has_plugin(ranks: rule_types.RankContext, plugin: _Plugin, image: str) -> bool:
    is_mounted = any(
        path.startswith(known) or known.startswith(f"{path}/") for path in ranks.mounts for known in plugin.paths
    )
    by_image = any(word in image.casefold() for word in plugin.images)
    is_libfabric = rule_types.is_on_efa(ranks) or "FI_PROVIDER" in ranks.effective
    return is_mounted or by_image or (is_libfabric and plugin is _LIBFABRIC)


# --- the interfaces that NCCL, Gloo, TensorPipe and Open MPI use beside the rails ----------------------

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
    is_on_node = bool(setting.value) and ranks.host_network and rule_types.is_on_efa(ranks)
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
        plain = rule_types.quote(value.replace("^", "").replace("=", ""))
        name = ranks.fabric_context.primary if "^" in value else plain
        yield f"takes plain interface names only, without ^ and =; write {name}"


def _check_open_mpi(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    excluded = ranks.get_setting(f"{setting.name.removesuffix('_include')}_exclude")
    if excluded is not None:
        yield f"conflicts with {rule_types.format_setting(excluded)}, and Open MPI stops; remove one of the two"


# --- the choice of a GID on RoCE: by index, or by family and range of addresses ------------------------

_INDEX, _FAMILY, _RANGE = "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE"
_CHOSEN_SINCE = (2, 21)  # the default of the index became -1, an automatic choice (NVIDIA/nccl v2.21.5-1)
# Devices whose GID table the vendor fixes: its manifests set the index (vllm-project/aibrix samples/disaggregation)
_FIXED_BY_VENDOR = frozenset({"vke.volcengine.com/rdma"})
_WITHOUT_GIDS = frozenset(
    {policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.PLUGIN, policies.Transport.TCP}
)  # N27's


def _check_fixed_index(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if (
        not setting.value
        or ranks.fabric_context.transport in _WITHOUT_GIDS
        or rule_types.is_older(ranks, *_CHOSEN_SINCE)
    ):
        return
    index, fabric = rule_types.parse_number(setting, ranks), ranks.fabric_context.fabric
    is_of_policy = fabric is not None and fabric.nccl.gid_index == index
    if index is not None and index >= 0 and not is_of_policy and not _has_fixed_table(ranks):
        yield "the right index differs from pod to pod; remove it: NCCL chooses it itself since 2.21"


def _has_fixed_table(ranks: rule_types.RankContext) -> bool:
    """True if the index is the same in each pod: on the host's network, or of devices of the pod or vendor alone."""
    requested = ranks.rdma_devices
    return ranks.host_network or (
        bool(requested) and all(name in _FIXED_BY_VENDOR or rule_types.is_exclusive(name) for name in requested)
    )


def _check_missing_index(ranks: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if not rule_types.is_older(ranks, *_CHOSEN_SINCE) or ranks.fabric_context.transport not in rule_types.WITH_GIDS:
        return
    setting = ranks.get_setting(_INDEX)
    if setting is not None and (setting.value is None or _is_fixed(setting.value, ranks.nccl)):
        return
    release = ".".join(map(str, ranks.nccl or ()))
    yield rule_types.Violation(
        f"{_INDEX} is not set, and NCCL {release} then uses entry 0, which is link-local; set it (show_gids lists "
        "them) or use NCCL 2.21 or newer",
        _INDEX,
        "" if setting is None else setting.where,
    )


def _is_fixed(value: str, release: tuple[int, ...] | None) -> bool:
    index = integers.parse(value, release)
    return not isinstance(index, integers.NoValue) and index >= 0


def _check_range(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    text = setting.text
    if not text or ranks.fabric_context.transport in _WITHOUT_GIDS or rule_types.is_on_efa(ranks):
        return
    network, family = _parse_range(text), _find_family(ranks)
    if network is None:
        yield "is not an address prefix, so NCCL ignores it; write one, such as 192.168.0.0/16 or fd00::/8"
    elif family is not None and network.version != family:
        yield (
            f"is not of the family NCCL looks for, {_format_family(family)}, so no GID matches and every HCA "
            f"falls to entry 0; set {_FAMILY}={_format_family(network.version)}"
        )


@functools.lru_cache(maxsize=256)
def _parse_range(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return an address prefix, or None for text that NCCL ignores: no address, no slash or no number of bits."""
    _, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()) or "%" in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _find_family(ranks: rule_types.RankContext) -> int | None:
    """Return the address family that NCCL uses, 4 or 6, or None if unknown. An invalid word counts as AF_INET."""
    setting = ranks.get_setting(_FAMILY)
    if setting is None:
        return 4
    return None if setting.value is None else 6 if setting.value == _format_family(6) else 4


def _format_family(version: int) -> str:
    """Return the value of NCCL_IB_ADDR_FAMILY for a family, 4 or 6."""
    return "AF_INET6" if version == 6 else "AF_INET"


RULES = (
    rule_types.Rule("N27", lambda name: name.startswith("NCCL_IB_"), _check_effect),
    rule_types.Rule("N28", frozenset({_DISABLE}), _check_disabled_rdma),
    rule_types.Rule("N29", frozenset({_NET}), _check_required),
    rule_types.Rule("N30", frozenset({_DISABLE}), _check_only_switch),
    rule_types.Rule("N31", frozenset({_NET}), _check_network),
    rule_types.Rule("N32", needs=("devices",), check_ranks=_check_fallback),
    rule_types.Rule("N55", lambda name: name.startswith("RDMAV_"), _check_verbs_on_efa),
    rule_types.Rule(
        "N62", frozenset({_PLUGIN, "FI_PROVIDER"}), _check_efa_settings, needs=("mounts",), check_ranks=_check_efa_mount
    ),
    rule_types.Rule("N63", frozenset({_NET}), _check_plugin),
    rule_types.Rule("N69", needs=("instance_types",), check_ranks=_check_instance_type),
    rule_types.Rule("N70", needs=("image",), check_ranks=_check_plugin_of_image),
    rule_types.Rule("N17", frozenset({_SOCKET}), _check_absent),
    rule_types.Rule("N18", frozenset({_SOCKET}), _check_rail),
    rule_types.Rule("N19", needs=("fabric_context.rail_interfaces",), check_ranks=_check_unset),
    rule_types.Rule("N20", frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}), _check_plain),
    rule_types.Rule("N68", frozenset({_SOCKET}), _check_link_local),
    rule_types.Rule("N54", frozenset(f"{family}_include" for family in _OPEN_MPI), _check_open_mpi),
    rule_types.Rule("N21", frozenset({_INDEX}), _check_fixed_index),
    rule_types.Rule("N22", needs=("nccl",), check_ranks=_check_missing_index),
    rule_types.Rule("N24", frozenset({_RANGE}), _check_range),
)
