"""N30: NCCL_IB_DISABLE as the only switch to TCP."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken

_NAME = "NCCL_IB_DISABLE"
# Any of these says which network or plugin is meant, or that the plugin of HPC-X is off as well.
_SETTLED = ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IBEXT_DISABLE")


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or not taken.is_on(ranks, _NAME) or taken.on_efa(ranks):
        return
    if all(taken.is_unset(ranks, name) for name in _SETTLED):
        yield settings.complaint(
            setting,
            "does not stop a network plugin in the image (HPC-X in NGC images, AWS, Google); to hold NCCL to TCP set "
            "NCCL_NET=Socket as well",
        )


RULE = model.Rule(
    code="N30",
    name="disable-does-not-stop-plugins",
    severity=model.Severity.WARNING,
    title="NCCL_IB_DISABLE alone does not hold NCCL to TCP",
    explanation=(
        "The variable turns off NCCL's own RDMA transport only. Images with HPC-X (NGC) or another network plugin go "
        "on with theirs: the one of HPC-X has a switch of its own, NCCL_IBEXT_DISABLE. NCCL_NET=Socket holds for all "
        "of them."
    ),
    source="NVIDIA/nccl issue 676; Mellanox/nccl-rdma-sharp-plugins",
    good=(
        model.Example(
            "with the network named", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1", NCCL_NET="Socket"))
        ),
        model.Example(
            "without plugins", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1", NCCL_NET_PLUGIN="none"))
        ),
        model.Example("not disabled", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="0"))),
    ),
    bad=(model.Example("alone", model.Ranks("a rank", settings.env(NCCL_IB_DISABLE="1"))),),
    check=_check,
)
