"""N51: out-of-order receive without adaptive routing."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_OOO_RQ"
_ROUTING = "NCCL_IB_ADAPTIVE_ROUTING"
_ROCE = model.Site(transport=policies.Transport.ROCE)


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or not taken.is_on(ranks, _NAME) or taken.on_efa(ranks) or not _static(ranks):
        return
    yield settings.complaint(
        setting, f"needs adaptive routing, which is off here; set {_ROUTING}=1 where the fabric does it, or remove this"
    )


def _static(ranks: model.Ranks) -> bool:
    """True where adaptive routing is known to be off: by its variable, or by its default on RoCE."""
    if taken.is_unset(ranks, _ROUTING):
        return ranks.site.transport in taken.WITH_GIDS
    return taken.number(ranks, _ROUTING) == 0


RULE = model.Rule(
    code="N51",
    name="out-of-order-without-adaptive-routing",
    severity=model.Severity.WARNING,
    title="NCCL_IB_OOO_RQ without adaptive routing",
    explanation=(
        "Consuming receive requests out of order serves packets that adaptive routing reorders; NCCL asks for both "
        "together. NCCL_IB_ADAPTIVE_ROUTING is on by default on InfiniBand and off on RoCE."
    ),
    source="NVIDIA/nccl user guide, NCCL_IB_OOO_RQ",
    good=(
        model.Example(
            "both", model.Ranks("a rank", settings.env(NCCL_IB_OOO_RQ="1", NCCL_IB_ADAPTIVE_ROUTING="1"), _ROCE)
        ),
        model.Example(
            "the default on InfiniBand",
            model.Ranks(
                "a rank", settings.env(NCCL_IB_OOO_RQ="1"), model.Site(transport=policies.Transport.INFINIBAND)
            ),
        ),
        model.Example("fabric not known", model.Ranks("a rank", settings.env(NCCL_IB_OOO_RQ="1"))),
    ),
    bad=(
        model.Example(
            "turned off", model.Ranks("a rank", settings.env(NCCL_IB_OOO_RQ="1", NCCL_IB_ADAPTIVE_ROUTING="0"))
        ),
        model.Example("the default on RoCE", model.Ranks("a rank", settings.env(NCCL_IB_OOO_RQ="1"), _ROCE)),
    ),
    check=_check,
)
