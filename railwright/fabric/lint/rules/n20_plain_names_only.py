"""N20: ^ and = of NCCL in the interface lists of Gloo and TensorPipe."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings

_NAMES = frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"})


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value in settings.list_values(ctx):
        if setting.name in _NAMES and ("^" in value or "=" in value):
            plain = settings.quote(value.replace("^", "").replace("=", ""))
            advice = f"write {ctx.fabric_context.primary}" if "^" in value else f"write {plain}"
            yield settings.build_violation(setting, f"takes plain interface names only, without ^ and =; {advice}")


RULE = rule_types.Rule(
    code="N20",
    name="plain-names-only",
    severity=rule_types.Severity.ERROR,
    title="GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME take plain names only",
    explanation=(
        "Gloo and TensorPipe use the text as the name of an interface. The marks of NCCL's grammar, copied from "
        "NCCL_SOCKET_IFNAME, match no interface, and process groups on CPU fail to start."
    ),
    source="PyTorch torch.distributed, common environment variables; facebookincubator/gloo",
    good=(
        rule_types.build_example(
            "a plain name", settings.build_env(GLOO_SOCKET_IFNAME="eth0", NCCL_SOCKET_IFNAME="=eth0")
        ),
    ),
    bad=(
        rule_types.build_example("=", settings.build_env(GLOO_SOCKET_IFNAME="=eth0")),
        rule_types.build_example("^", settings.build_env(TP_SOCKET_IFNAME="^lo,docker0")),
    ),
    check=_check,
)
