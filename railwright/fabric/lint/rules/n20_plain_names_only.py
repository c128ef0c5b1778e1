"""N20: NCCL's marks in the interface lists of Gloo and TensorPipe."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings

_NAMES = frozenset({"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"})


def _check(ctx: model.RankContext) -> Iterator[model.Violation]:
    for setting, value in settings.list_values(ctx):
        if setting.name in _NAMES and ("^" in value or "=" in value):
            plain = settings.quote(value.replace("^", "").replace("=", ""))
            advice = f"write {ctx.fabric_context.primary}" if "^" in value else f"write {plain}"
            yield settings.violation(setting, f"takes plain interface names only, without ^ and =; {advice}")


RULE = model.Rule(
    code="N20",
    name="plain-names-only",
    severity=model.Severity.ERROR,
    title="GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME take plain names only",
    explanation=(
        "Gloo and TensorPipe use the text as the name of an interface. The marks of NCCL's grammar, copied from "
        "NCCL_SOCKET_IFNAME, match no interface, and process groups on CPU fail to start."
    ),
    source="PyTorch torch.distributed, common environment variables; facebookincubator/gloo",
    good=(model.example("a plain name", settings.env(GLOO_SOCKET_IFNAME="eth0", NCCL_SOCKET_IFNAME="=eth0")),),
    bad=(
        model.example("=", settings.env(GLOO_SOCKET_IFNAME="=eth0")),
        model.example("^", settings.env(TP_SOCKET_IFNAME="^lo,docker0")),
    ),
    check=_check,
)
