"""N21: a fixed GID index where NCCL can choose."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings
from railwright.fabric.nccl import integers
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_GID_INDEX"
_AUTOMATIC = (2, 21)  # the default became -1 (NVIDIA/nccl v2.21.5-1)
_WITHOUT_GIDS = frozenset({policies.Transport.INFINIBAND, policies.Transport.EFA, policies.Transport.TCP})  # N27's
_ROCE = model.Site(transport=policies.Transport.ROCE)


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or not setting.value or ranks.site.transport in _WITHOUT_GIDS:
        return
    index = integers.parse(setting.value, ranks.nccl)
    old = ranks.nccl is not None and ranks.nccl < _AUTOMATIC
    if old or isinstance(index, integers.NoValue) or index < 0 or _of_the_site(ranks, index):
        return
    yield settings.complaint(
        setting, "the right index differs from pod to pod; remove it: NCCL chooses it itself since 2.21"
    )


def _of_the_site(ranks: model.Ranks, index: int) -> bool:
    fabric = ranks.site.fabric
    return fabric is not None and fabric.nccl.gid_index == index


RULE = model.Rule(
    code="N21",
    name="fixed-gid-index",
    severity=model.Severity.WARNING,
    title="A fixed GID index on RoCE",
    explanation=(
        "The index is a property of the pod: the order in which addresses came up decides, and one value is used for "
        "every HCA, unchecked. Since 2.21 NCCL chooses the entry itself, and its guide says not to set this. Where "
        "NCCL's release is not known, it is taken for a newer one; a policy that says gidIndex is believed."
    ),
    source="NVIDIA/nccl networking troubleshooting guide; multus-cni issue 1100",
    good=(
        model.Example("left to NCCL", model.Ranks("a rank", settings.env(NCCL_IB_GID_INDEX="-1"), _ROCE)),
        model.Example(
            "too old to choose", model.Ranks("a rank", settings.env(NCCL_IB_GID_INDEX="3"), _ROCE, nccl=(2, 19, 3))
        ),
        model.Example(
            "no GID table that matters",
            model.Ranks(
                "a rank", settings.env(NCCL_IB_GID_INDEX="3"), model.Site(transport=policies.Transport.INFINIBAND)
            ),
        ),
    ),
    bad=(
        model.Example("fixed", model.Ranks("a rank", settings.env(NCCL_IB_GID_INDEX="3"), _ROCE, nccl=(2, 21, 5))),
        model.Example("release not known", model.Ranks("a rank", settings.env(NCCL_IB_GID_INDEX="5"), _ROCE)),
    ),
    check=_check,
)
