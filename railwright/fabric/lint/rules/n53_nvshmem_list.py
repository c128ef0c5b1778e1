"""N53: a device list that NVSHMEM does not read."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAME = "NVSHMEM_HCA_LIST"
_SWITCH = "NVSHMEM_ENABLE_NIC_PE_MAPPING"
_ON = ("1", "y", "t")  # NVSHMEM looks at the first letter of a boolean


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    setting, switch = ctx.get_setting(_NAME), ctx.get_setting(_SWITCH)
    if setting is None or (switch is not None and (switch.value is None or switch.value.lower().startswith(_ON))):
        return
    yield settings.build_violation(setting, f"NVSHMEM reads the list only with {_SWITCH}=1; set it too")


RULE = rule_types.Rule(
    code="N53",
    name="nvshmem-list-not-read",
    severity=rule_types.Severity.WARNING,
    title="NVSHMEM_HCA_LIST without NVSHMEM_ENABLE_NIC_PE_MAPPING=1",
    explanation=(
        "NVSHMEM uses its device list only if the mapping of NICs to processing elements is enabled. Otherwise it "
        "uses the nearest devices, which may be those of storage or management."
    ),
    source="NVIDIA/nvshmem src/include/host/env",
    good=(
        rule_types.build_example(
            "with the switch", settings.build_env(NVSHMEM_HCA_LIST="mlx5_0:1", NVSHMEM_ENABLE_NIC_PE_MAPPING="1")
        ),
        rule_types.build_example("neither", settings.build_env(NVSHMEM_REMOTE_TRANSPORT="ibrc")),
    ),
    bad=(
        rule_types.build_example("without", settings.build_env(NVSHMEM_HCA_LIST="mlx5_0:1")),
        rule_types.build_example(
            "switched off", settings.build_env(NVSHMEM_HCA_LIST="mlx5_0:1", NVSHMEM_ENABLE_NIC_PE_MAPPING="0")
        ),
    ),
    check=_check,
)
