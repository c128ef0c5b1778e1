"""N12: a list of devices or interfaces with an entry that matches nothing."""

from collections.abc import Iterator

from railwright.fabric.lint import rule_types, settings
from railwright.fabric.nccl import lists

_LONGEST = {  # characters of a name in the list
    "NCCL_IB_HCA": lists.MAX_DEVICE_LENGTH,
    "NCCL_SOCKET_IFNAME": lists.MAX_INTERFACE_LENGTH,
    "NCCL_OOB_NET_IFNAME": lists.MAX_INTERFACE_LENGTH,
}


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    for setting, value in settings.list_values(ctx):
        if setting.name in _LONGEST and (text := settings.strip_quotes(value)):
            yield from (settings.build_violation(setting, flaw) for flaw in _list_flaws(text, _LONGEST[setting.name]))


def _list_flaws(text: str, longest: int) -> Iterator[str]:
    if any(blank in text for blank in settings.BLANKS):
        yield "a blank becomes part of the name behind it, which then matches nothing; remove the blanks"
    if text.startswith("=^"):
        yield "=^ matches nothing: ^ must stand before =; write ^="
        return
    name_list = lists.parse(text)
    if not name_list.entries:
        yield f"has no name: it selects {'nothing' if name_list.exclude else 'everything'}; name what is meant"
    for entry in name_list.entries:
        if entry.name.startswith(("^", "=")):
            name = settings.quote(entry.name)
            yield f"{name}: ^ and = count in front of the whole list only, so this entry matches nothing"
        elif len(entry.name) > longest:
            yield f"{settings.quote(entry.name)} is longer than {longest} characters and matches nothing; correct it"
        elif entry.port == 0:
            yield f"{settings.quote(entry.name)}: its port is no number from 1 on and matches nothing; write name:1"


RULE = rule_types.Rule(
    code="N12",
    name="malformed-list",
    severity=rule_types.Severity.ERROR,
    title="An entry of a device or interface list matches nothing",
    explanation=(
        "The grammar is: optional ^ (exclude), then optional = (exact), then names separated by commas without "
        "blanks. ^ comes before =, both once and at the very start. If NCCL_IB_HCA matches nothing, NCCL reports "
        "no error and continues over TCP."
    ),
    source="NVIDIA/nccl src/misc/utils.cc and src/transport/net_ib/init.cc, run on the extracted grammar",
    good=(
        rule_types.build_example("an exact list", settings.build_env(NCCL_IB_HCA="=mlx5_0,mlx5_1:1")),
        rule_types.build_example("an excluded list", settings.build_env(NCCL_SOCKET_IFNAME="^=docker0,lo")),
    ),
    bad=(
        rule_types.build_example("a blank", settings.build_env(NCCL_IB_HCA="mlx5_0, mlx5_1")),
        rule_types.build_example("= repeated", settings.build_env(NCCL_IB_HCA="=mlx5_0,=mlx5_1")),
        rule_types.build_example("^ repeated", settings.build_env(NCCL_SOCKET_IFNAME="^lo,^docker")),
        rule_types.build_example("the marks in the wrong order", settings.build_env(NCCL_IB_HCA="=^mlx5_4")),
    ),
    check=_check,
)
