"""N37: NCCL_CROSS_NIC against what the policy says of the rails."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken
from railwright.fabric.policy import model as policies

_NAME = "NCCL_CROSS_NIC"
_SAME_NIC = 0


def _site(*, rail_only: bool) -> model.Site:
    rails = (policies.Rail(name="rail0"), policies.Rail(name="rail1"))
    fabric = policies.Fabric(transport=policies.Transport.ROCE, rails=rails, nccl=policies.Nccl(rail_only=rail_only))
    return model.Site(transport=fabric.transport, fabric=fabric)


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    fabric = ranks.site.fabric
    if fabric is None or len(fabric.rails) < 2 or taken.is_policy_value(ranks, _NAME):
        return
    for setting, number in taken.numbers(ranks, _NAME):
        if fabric.nccl.rail_only and number != _SAME_NIC:
            yield settings.complaint(
                setting,
                "lets NCCL cross rails, and the policy says that they do not reach each other (railOnly); "
                "write 0 or remove it",
            )
        elif not fabric.nccl.rail_only and number == _SAME_NIC:
            yield settings.complaint(
                setting,
                "keeps NCCL from crossing rails, and in the policy they reach each other, so it may cost "
                "bandwidth; remove it, or have the policy say railOnly",
            )


RULE = model.Rule(
    code="N37",
    name="cross-nic-against-policy",
    severity=model.Severity.WARNING,
    title="NCCL_CROSS_NIC differs from the fabric's policy",
    explanation=(
        "NCCL cannot see whether rails reach each other; the policy's railOnly says it. Where they do not, 1 and 2 let "
        "a ring leave a node on another rail than it came in on, and connections time out. Where they do, 0 caps what "
        "the fabric could carry."
    ),
    source="NVIDIA/nccl src/graph/search.cc; user guide, NCCL_CROSS_NIC",
    good=(
        model.Example(
            "rail-only, as the policy says",
            model.Ranks("a rank", settings.env(NCCL_CROSS_NIC="0"), _site(rail_only=True)),
        ),
        model.Example(
            "NCCL's default on a connected fabric",
            model.Ranks("a rank", settings.env(NCCL_CROSS_NIC="2"), _site(rail_only=False)),
        ),
        model.Example("no policy", model.Ranks("a rank", settings.env(NCCL_CROSS_NIC="0"))),
    ),
    bad=(
        model.Example(
            "rails that do not meet",
            model.Ranks("a rank", settings.env(NCCL_CROSS_NIC="1"), _site(rail_only=True)),
        ),
        model.Example("rails that do", model.Ranks("a rank", settings.env(NCCL_CROSS_NIC="0"), _site(rail_only=False))),
    ),
    check=_check,
)
