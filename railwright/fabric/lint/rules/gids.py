"""Rules about the choice of a GID on RoCE: by index, or by family and range of addresses."""

import functools
import ipaddress
from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import integers
from railwright.fabric.policy import model as policies

_INDEX, _FAMILY, _RANGE = "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE"
_AUTOMATIC = (2, 21)  # the default of the index became -1, an automatic choice (NVIDIA/nccl v2.21.5-1)
# Devices whose GID table the vendor fixes: its manifests set the index (vllm-project/aibrix samples/disaggregation)
_FIXED_BY_VENDOR = frozenset({"vke.volcengine.com/rdma"})
_WITHOUT_GIDS = frozenset(
    {policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.PLUGIN, policies.Transport.TCP}
)  # N27's


def _check_fixed_index(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if not setting.value or ranks.fabric_context.transport in _WITHOUT_GIDS or settings.is_older(ranks, *_AUTOMATIC):
        return
    index, fabric = settings.parse_number(setting, ranks), ranks.fabric_context.fabric
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
    if not settings.is_older(ranks, *_AUTOMATIC) or ranks.fabric_context.transport not in settings.WITH_GIDS:
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
    if not text or ranks.fabric_context.transport in _WITHOUT_GIDS or settings.is_on_efa(ranks):
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
    rule_types.Rule("N21", frozenset({_INDEX}), _check_fixed_index),
    rule_types.Rule("N22", needs=("nccl",), check_ranks=_check_missing_index),
    rule_types.Rule("N24", frozenset({_RANGE}), _check_range),
)
