"""N24: an address range that is none, or of the other family."""

from collections.abc import Iterator

from railwright.fabric.lint import addresses, model, settings, taken
from railwright.fabric.policy import model as policies

_WITHOUT = frozenset({policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.TCP})  # N27's


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(addresses.RANGE)
    text = settings.bare(setting.value or "") if setting else ""
    if setting is None or not text or ranks.site.transport in _WITHOUT or taken.on_efa(ranks):
        return
    network, family = addresses.network(text), addresses.find_family(ranks)
    if network is None:
        yield settings.complaint(
            setting, "is not an address prefix, so NCCL ignores it; write one, such as 192.168.0.0/16 or fd00::/8"
        )
    elif family is not None and network.version != family:
        yield settings.complaint(
            setting,
            f"is not of the family NCCL looks for, {addresses.word(family)}, so no GID matches and every HCA falls to "
            f"entry 0; set {addresses.FAMILY}={addresses.word(network.version)}",
        )


RULE = model.Rule(
    code="N24",
    name="address-range-unusable",
    severity=model.Severity.ERROR,
    title="NCCL_IB_ADDR_RANGE is no prefix, or of the other family",
    explanation=(
        "The range is one prefix in CIDR form, and NCCL picks GIDs of NCCL_IB_ADDR_FAMILY (AF_INET unless set) that "
        "lie in it. What is no prefix is ignored with only an INFO line; a prefix of the other family matches no GID, "
        "and every HCA falls to entry 0, which is link-local."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc",
    good=(
        model.Example("IPv4, the default", model.Ranks("a rank", settings.env(NCCL_IB_ADDR_RANGE="192.168.0.0/16"))),
        model.Example(
            "IPv6, and the family says so",
            model.Ranks("a rank", settings.env(NCCL_IB_ADDR_FAMILY="AF_INET6", NCCL_IB_ADDR_RANGE="fd02::/16")),
        ),
        model.Example(
            "a family nobody knows here",
            model.Ranks("a rank", settings.env(NCCL_IB_ADDR_FAMILY=None, NCCL_IB_ADDR_RANGE="fd02::/16")),
        ),
    ),
    bad=(
        model.Example("an address", model.Ranks("a rank", settings.env(NCCL_IB_ADDR_RANGE="192.168.0.0"))),
        model.Example("a netmask", model.Ranks("a rank", settings.env(NCCL_IB_ADDR_RANGE="192.168.0.0/255.255.0.0"))),
        model.Example("IPv6 without the family", model.Ranks("a rank", settings.env(NCCL_IB_ADDR_RANGE="fd02::/16"))),
    ),
    check=_check,
)
