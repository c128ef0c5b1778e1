"""N39: one identity for every rank of a template."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_EFFECTS = {
    "NCCL_COMM_ID": "every communicator then meets at this one address, and the second fails",
    "NCCL_HOSTID": "pods on different nodes then take each other for neighbours and try shared memory",
}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value in settings.list_values(ctx):
        if setting.name in _EFFECTS and value and _is_shared(setting, ctx):
            yield settings.build_violation(
                setting, f"is the same in all pods of the template: {_EFFECTS[setting.name]}; remove it"
            )


def _is_shared(setting: rule_types.Setting, ctx: rule_types.RankContext) -> bool:
    """True if several ranks get the value. A launcher's mpirun passes it to the whole job, a template to its pods."""
    has_several_ranks = (ctx.job or 1) > 1
    reaches_job = setting.origin is rule_types.Origin.MPIRUN or setting.name == "NCCL_COMM_ID"
    return (ctx.count or 1) > 1 or (has_several_ranks and reaches_job)


RULE = rule_types.Rule(
    code="N39",
    name="one-identity-for-all",
    severity=rule_types.Severity.ERROR,
    title="NCCL_COMM_ID or NCCL_HOSTID is the same for several ranks",
    explanation=(
        "NCCL_HOSTID says which ranks share a machine, and NCCL_COMM_ID sets the address at which a communicator "
        "is created. A pod template gives all of its pods the same value, so all ranks appear identical. Values "
        "from the pod itself (valueFrom) and templates of one pod are not reported."
    ),
    source="NVIDIA/nccl src/misc/utils.cc and src/bootstrap.cc",
    good=(
        rule_types.build_example("one pod", settings.build_env(NCCL_HOSTID="node1"), count=1, job=1),
        rule_types.build_example("from the pod", settings.build_env(NCCL_HOSTID=None), count=8, job=64),
        rule_types.build_example("unknown number of pods", settings.build_env(NCCL_HOSTID="node1")),
    ),
    bad=(
        rule_types.build_example("eight pods on one host", settings.build_env(NCCL_HOSTID="node1"), count=8),
        rule_types.build_example(
            "one address for the job", settings.build_env(NCCL_COMM_ID="10.0.0.1:5000"), count=1, job=16
        ),
    ),
    check=_check,
)
