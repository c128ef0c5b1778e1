"""N29: the network that is required is turned off."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken

_NAME = "NCCL_NET"


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or (setting.value or "").casefold() != "ib" or not taken.is_on(ranks, "NCCL_IB_DISABLE"):
        return
    yield settings.complaint(
        setting, "with NCCL_IB_DISABLE on there is no such network, and NCCL fails at start; remove one of the two"
    )


RULE = model.Rule(
    code="N29",
    name="required-network-disabled",
    severity=model.Severity.ERROR,
    title="NCCL_NET=IB together with NCCL_IB_DISABLE",
    explanation=(
        "NCCL_NET names the one network NCCL may use, in any letter case, and a network that is absent fails the "
        "initialisation. With NCCL_IB_DISABLE=1 the network IB is absent."
    ),
    source="NVIDIA/nccl src/plugin/net.cc",
    good=(
        model.Example("required", model.Ranks("a rank", settings.env(NCCL_NET="IB", NCCL_IB_DISABLE="0"))),
        model.Example("held to TCP", model.Ranks("a rank", settings.env(NCCL_NET="Socket", NCCL_IB_DISABLE="1"))),
    ),
    bad=(
        model.Example("both", model.Ranks("a rank", settings.env(NCCL_NET="IB", NCCL_IB_DISABLE="1"))),
        model.Example("in small letters", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1", NCCL_NET="ib"))),
    ),
    check=_check,
)
