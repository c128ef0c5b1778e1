"""N16: exact device names where the devices are virtual functions, allocated later."""

from collections.abc import Iterator

from railwright.fabric.lint import hardware, model, settings
from railwright.fabric.nccl import lists

_NAME = "NCCL_IB_HCA"


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting = ranks.setting(_NAME)
    if setting is None or not setting.value:
        return
    name_list = lists.parse(settings.bare(setting.value))
    if not name_list.exact or name_list.exclude or not _virtual(ranks) or _foreseen(name_list, ranks):
        return
    yield settings.complaint(
        setting, "names of virtual functions are not known before they are allocated; use a prefix, such as mlx5"
    )


def _virtual(ranks: model.Ranks) -> bool:
    requested = hardware.rdma(ranks)
    return bool(ranks.site.exclusive) and (not requested or any(map(hardware.is_virtual, requested)))


def _foreseen(name_list: lists.NameList, ranks: model.Ranks) -> bool:
    """True where the policy itself names these devices."""
    named = {device for devices in ranks.site.devices or () for device in devices}
    return bool(name_list.entries) and all(entry.name in named for entry in name_list.entries)


RULE = model.Rule(
    code="N16",
    name="exact-list-for-virtual-functions",
    severity=model.Severity.WARNING,
    title="Exact device names for virtual functions",
    explanation=(
        "A pod with SR-IOV gets whatever functions are free, under names that differ from pod to pod. A list of "
        "physical functions matches nothing inside it, and NCCL silently continues over TCP."
    ),
    source="oracle-quickstart/oci-hpc-oke, recommended NCCL parameters by shape",
    good=(
        model.Example(
            "a prefix",
            model.Ranks(
                "a rank", settings.env(NCCL_IB_HCA="mlx5"), model.Site(exclusive=True), devices={"x/sriov_vf": 8}
            ),
        ),
    ),
    bad=(
        model.Example(
            "exact names",
            model.Ranks(
                "a rank",
                settings.env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
                model.Site(exclusive=True),
                devices={"nvidia.com/sriov-rdma-vf": 2},
            ),
        ),
    ),
    check=_check,
)
