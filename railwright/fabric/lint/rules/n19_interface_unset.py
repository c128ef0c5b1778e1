"""N19: NCCL_SOCKET_IFNAME is unset in a pod with rails."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_NAME = "NCCL_SOCKET_IFNAME"
_POD = model.Site(interfaces=("eth0", "net1"), rail_interfaces=("net1",))


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if ranks.site.rail_interfaces and ranks.setting(_NAME) is None:
        yield model.Complaint(
            f"{_NAME} is not set, and the pod has {', '.join(ranks.site.rail_interfaces)}: NCCL may choose a rail for "
            f"bootstrap; set it to ={ranks.site.primary}",
            _NAME,
        )


RULE = model.Rule(
    code="N19",
    name="interface-unset",
    severity=model.Severity.WARNING,
    title="NCCL_SOCKET_IFNAME is unset in a pod with secondary networks",
    explanation=(
        "Unset, NCCL takes interfaces whose names begin with ib first, then all but docker, lo and virbr: every "
        "secondary network of the pod is a candidate for bootstrap, and a data device of the TCP transport."
    ),
    source="NVIDIA/nccl src/misc/socket.cc",
    good=(
        model.Example("set", model.Ranks("a rank", settings.env(NCCL_SOCKET_IFNAME="=eth0"), _POD)),
        model.Example("no secondary networks", model.Ranks("a rank", site=model.Site(interfaces=("eth0",)))),
    ),
    bad=(model.Example("unset", model.Ranks("a rank", settings.env(NCCL_DEBUG="WARN"), _POD)),),
    check=_check,
)
