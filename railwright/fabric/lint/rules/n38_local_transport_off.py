"""N38: NVLink or shared memory turned off although the container has several GPUs."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.accelerators < 2:
        return
    advice = f"and the container has {ctx.accelerators} accelerators; remove it outside of benchmarks"
    for setting, number in effective_values.list_numbers(ctx, "NCCL_P2P_DISABLE"):
        if number == 1:  # it acts on this number only (src/graph/paths.cc)
            yield settings.build_violation(setting, f"turns NVLink and PCIe between GPUs off, {advice}")
    for setting, number in effective_values.list_numbers(ctx, "NCCL_SHM_DISABLE"):
        if number != 0:
            yield settings.build_violation(setting, f"turns shared memory between ranks off, {advice}")


RULE = rule_types.Rule(
    code="N38",
    name="local-transport-off",
    severity=rule_types.Severity.WARNING,
    title="GPUs of one container cannot use NVLink or shared memory",
    explanation=(
        "These variables force traffic onto the network, to measure it, and are often copied from benchmarks into "
        "training manifests. With several GPUs in a container, traffic then uses the NICs instead of NVLink or "
        "shared memory. With one GPU per pod they change nothing and are not reported."
    ),
    source="NVIDIA/nccl src/graph/paths.cc; kubernetes-sigs/dranet examples",
    good=(
        rule_types.build_example(
            "one GPU", settings.build_env(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1"), accelerators=1
        ),
        rule_types.build_example("enabled", settings.build_env(NCCL_SHM_DISABLE="0"), accelerators=8),
    ),
    bad=(
        rule_types.build_example("NVLink off", settings.build_env(NCCL_P2P_DISABLE="1"), accelerators=8),
        rule_types.build_example("shared memory off", settings.build_env(NCCL_SHM_DISABLE="1"), accelerators=2),
    ),
    check=_check,
)
