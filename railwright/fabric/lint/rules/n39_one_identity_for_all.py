"""N39: one identity for every rank of a template."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_EFFECTS = {
    "NCCL_COMM_ID": "every communicator then meets at this one address, and the second fails",
    "NCCL_HOSTID": "pods on different nodes then take each other for neighbours and try shared memory",
}


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    for setting, value in settings.list_values(ranks):
        if setting.name in _EFFECTS and value and _is_shared(setting, ranks):
            yield settings.complaint(
                setting, f"is the same in all pods of the template: {_EFFECTS[setting.name]}; remove it"
            )


def _is_shared(setting: model.Setting, ranks: model.Ranks) -> bool:
    """A launcher's mpirun gives it to the whole job, a template to its own pods."""
    several = (ranks.job or 1) > 1
    everywhere = setting.origin is model.Origin.MPIRUN or setting.name == "NCCL_COMM_ID"
    return (ranks.count or 1) > 1 or (several and everywhere)


RULE = model.Rule(
    code="N39",
    name="one-identity-for-all",
    severity=model.Severity.ERROR,
    title="NCCL_COMM_ID or NCCL_HOSTID in a template that several ranks share",
    explanation=(
        "NCCL_HOSTID tells which ranks share a machine, NCCL_COMM_ID fixes the address at which a communicator is "
        "made. A pod template gives one value to all of its pods, so that every rank becomes the same. A value that "
        "comes from the pod itself (valueFrom) differs and is not reported, nor is a template of one pod."
    ),
    source="NVIDIA/nccl src/misc/utils.cc and src/bootstrap.cc",
    good=(
        model.Example("one pod", model.Ranks("a rank", settings.env(NCCL_HOSTID="node1"), count=1, job=1)),
        model.Example("from the pod", model.Ranks("a rank", settings.env(NCCL_HOSTID=None), count=8, job=64)),
        model.Example("not known how many", model.Ranks("a rank", settings.env(NCCL_HOSTID="node1"))),
    ),
    bad=(
        model.Example("eight pods on one host", model.Ranks("a rank", settings.env(NCCL_HOSTID="node1"), count=8)),
        model.Example(
            "one address for the job",
            model.Ranks("a rank", settings.env(NCCL_COMM_ID="10.0.0.1:5000"), count=1, job=16),
        ),
    ),
    check=_check,
)
