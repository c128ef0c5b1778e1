"""N26: rails with IPv6 only, and NCCL looks for IPv4."""

from collections.abc import Iterator

from railwright.fabric.lint import addresses, model, settings, taken
from railwright.fabric.policy import model as policies

_INDEX = "NCCL_IB_GID_INDEX"
_RAILS = model.Site(transport=policies.Transport.ROCE, rail_subnets=("fd02:1::/64", "fd02:2::/64"))


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    rails = addresses.rails(ranks)
    if not rails or any(rail.version != 6 for rail in rails) or ranks.site.transport not in {None, *taken.WITH_GIDS}:
        return
    setting, index = ranks.setting(addresses.FAMILY), ranks.setting(_INDEX)
    number = taken.number(ranks, _INDEX)
    fixed = index is not None and (index.value is None or (number is not None and number >= 0))
    if addresses.find_family(ranks) != 4 or fixed or taken.is_older(ranks, *addresses.SINCE):
        return
    problem = f"the rails have IPv6 addresses only, so NCCL finds no GID; set {addresses.FAMILY}=AF_INET6"
    if setting is None:
        yield model.Complaint(f"{addresses.FAMILY} is not set: {problem}", addresses.FAMILY)
    else:
        yield settings.complaint(setting, problem)


RULE = model.Rule(
    code="N26",
    name="address-family-of-rails",
    severity=model.Severity.WARNING,
    title="IPv6-only rails without NCCL_IB_ADDR_FAMILY=AF_INET6",
    explanation=(
        "NCCL looks for IPv4 GIDs unless told otherwise, and takes an unknown word for AF_INET. On rails that have "
        "only IPv6 addresses it then finds none and uses entry 0, which is link-local."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc, simulated on recorded GID tables",
    good=(
        model.Example("told", model.Ranks("a rank", settings.env(NCCL_IB_ADDR_FAMILY="AF_INET6"), _RAILS)),
        model.Example(
            "both families on the rails",
            model.Ranks("a rank", site=model.Site(rail_subnets=("fd02:1::/64", "192.168.1.0/24"))),
        ),
        model.Example("subnets not known", model.Ranks("a rank", site=model.Site(transport=policies.Transport.ROCE))),
        model.Example("a fixed index", model.Ranks("a rank", settings.env(NCCL_IB_GID_INDEX="3"), _RAILS)),
    ),
    bad=(
        model.Example("unset", model.Ranks("a rank", site=_RAILS)),
        model.Example("IPv4", model.Ranks("a rank", settings.env(NCCL_IB_ADDR_FAMILY="AF_INET"), _RAILS)),
    ),
    check=_check,
)
