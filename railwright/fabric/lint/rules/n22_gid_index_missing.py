"""N22: no GID index for an NCCL that cannot choose one."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import integers
from railwright.fabric.policy import model as policies

_NAME = "NCCL_IB_GID_INDEX"
_AUTOMATIC = (2, 21)  # the default became -1 (NVIDIA/nccl v2.21.5-1)
_WITH_GIDS = frozenset({policies.Transport.ROCE, policies.Transport.ERDMA, policies.Transport.PVRDMA})
_ROCE = rule_types.FabricContext(transport=policies.Transport.ROCE)


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.nccl is None or ctx.nccl >= _AUTOMATIC or ctx.fabric_context.transport not in _WITH_GIDS:
        return
    setting = ctx.get_setting(_NAME)
    if setting is not None and (setting.value is None or _is_fixed(setting.value, ctx.nccl)):
        return
    release = ".".join(map(str, ctx.nccl))
    yield rule_types.Violation(
        f"{_NAME} is not set, and NCCL {release} then uses entry 0, which is link-local; set it (show_gids lists them) "
        "or use NCCL 2.21 or newer",
        _NAME,
        "" if setting is None else setting.where,
    )


def _is_fixed(value: str, release: tuple[int, ...]) -> bool:
    index = integers.parse(value, release)
    return not isinstance(index, integers.NoValue) and index >= 0


RULE = rule_types.Rule(
    code="N22",
    name="gid-index-missing",
    severity=rule_types.Severity.ERROR,
    title="No GID index on RoCE with NCCL before 2.21",
    explanation=(
        "Before 2.21 the default is entry 0 of the table, a link-local address that is not routed: connections "
        "fail or time out. Only images with a known release before 2.21 are reported."
    ),
    source="NVIDIA/nccl src/transport/net_ib/connect.cc",
    good=(
        rule_types.build_example("set", settings.build_env(NCCL_IB_GID_INDEX="3"), _ROCE, nccl=(2, 20, 5)),
        rule_types.build_example("release 2.21 or newer", fabric_context=_ROCE, nccl=(2, 21, 5)),
        rule_types.build_example("release not known", fabric_context=_ROCE),
    ),
    bad=(rule_types.build_example("unset", fabric_context=_ROCE, nccl=(2, 20, 5)),),
    check=_check,
)
