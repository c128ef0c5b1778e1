"""N38: NVLink or shared memory turned off where several GPUs talk."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if ranks.accelerators < 2:
        return
    advice = f"and the container has {ranks.accelerators} accelerators; remove it outside of benchmarks"
    for setting, number in taken.numbers(ranks, "NCCL_P2P_DISABLE"):
        if number == 1:  # it acts on this number only (src/graph/paths.cc)
            yield settings.complaint(setting, f"turns NVLink and PCIe between GPUs off, {advice}")
    for setting, number in taken.numbers(ranks, "NCCL_SHM_DISABLE"):
        if number != 0:
            yield settings.complaint(setting, f"turns shared memory between ranks off, {advice}")


RULE = model.Rule(
    code="N38",
    name="local-transport-off",
    severity=model.Severity.WARNING,
    title="GPUs of one container may not talk over NVLink or shared memory",
    explanation=(
        "These variables force traffic onto the network to measure it, and leak from benchmarks into training "
        "manifests. With several GPUs in a container they send what NVLink or shared memory would carry through the "
        "NICs. With one GPU in a pod they change nothing and are not reported."
    ),
    source="NVIDIA/nccl src/graph/paths.cc; kubernetes-sigs/dranet examples",
    good=(
        model.Example(
            "one GPU",
            model.Ranks("a rank", settings.env(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1"), accelerators=1),
        ),
        model.Example("on", model.Ranks("a rank", settings.env(NCCL_SHM_DISABLE="0"), accelerators=8)),
    ),
    bad=(
        model.Example("NVLink off", model.Ranks("a rank", settings.env(NCCL_P2P_DISABLE="1"), accelerators=8)),
        model.Example("shared memory off", model.Ranks("a rank", settings.env(NCCL_SHM_DISABLE="1"), accelerators=2)),
    ),
    check=_check,
)
