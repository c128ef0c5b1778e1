"""N53: a device list that NVSHMEM does not read."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_NAME = "NVSHMEM_HCA_LIST"
_SWITCH = "NVSHMEM_ENABLE_NIC_PE_MAPPING"
_ON = ("1", "y", "t")  # NVSHMEM looks at the first letter of a boolean


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    setting, switch = ranks.setting(_NAME), ranks.setting(_SWITCH)
    if setting is None or (switch is not None and (switch.value is None or switch.value.lower().startswith(_ON))):
        return
    yield settings.complaint(setting, f"NVSHMEM reads the list only with {_SWITCH}=1; set it too")


RULE = model.Rule(
    code="N53",
    name="nvshmem-list-not-read",
    severity=model.Severity.WARNING,
    title="NVSHMEM_HCA_LIST without NVSHMEM_ENABLE_NIC_PE_MAPPING=1",
    explanation=(
        "NVSHMEM takes its device list only where the mapping of NICs to processing elements is enabled. Without it, "
        "it takes the nearest devices, which may be those of storage or management."
    ),
    source="NVIDIA/nvshmem src/include/host/env",
    good=(
        model.Example(
            "with the switch",
            model.Ranks("a rank", settings.env(NVSHMEM_HCA_LIST="mlx5_0:1", NVSHMEM_ENABLE_NIC_PE_MAPPING="1")),
        ),
        model.Example("neither", model.Ranks("a rank", settings.env(NVSHMEM_REMOTE_TRANSPORT="ibrc"))),
    ),
    bad=(
        model.Example("without", model.Ranks("a rank", settings.env(NVSHMEM_HCA_LIST="mlx5_0:1"))),
        model.Example(
            "switched off",
            model.Ranks("a rank", settings.env(NVSHMEM_HCA_LIST="mlx5_0:1", NVSHMEM_ENABLE_NIC_PE_MAPPING="0")),
        ),
    ),
    check=_check,
)
