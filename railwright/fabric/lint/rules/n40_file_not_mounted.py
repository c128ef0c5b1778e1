"""N40: a topology or graph file that nothing mounts."""

from collections.abc import Iterator

from railwright.fabric.lint import effective_values, rule_types, settings

_EFFECTS = {
    "NCCL_TOPO_FILE": "NCCL ignores a topology file that is missing",
    "NCCL_GRAPH_FILE": "NCCL fails at start when the graph file is missing",
}
_IN_IMAGES = ("/opt/amazon/",)  # images of AWS have the files of their plugin here
_DEFAULT = "/var/run/nvidia-topologyd/virtualTopology.xml"  # NCCL looks here by default


def _check(ctx: rule_types.RankContext) -> Iterator[rule_types.Violation]:
    if ctx.capabilities is None:  # no pod is seen, so neither are its mounts
        return
    for setting, value in settings.list_values(ctx):
        path = settings.strip_quotes(value)
        if (
            setting.name not in _EFFECTS
            or not path
            or _is_present(path, ctx)
            or effective_values.is_policy_value(ctx, setting.name)
        ):
            continue
        yield settings.build_violation(
            setting, f"no volume is mounted there, and {_EFFECTS[setting.name]}; mount it, unless the image holds it"
        )


def _is_present(path: str, ctx: rule_types.RankContext) -> bool:
    mounted = any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in ctx.mounts)
    return mounted or path == _DEFAULT or path.startswith(_IN_IMAGES)


RULE = rule_types.Rule(
    code="N40",
    name="file-not-mounted",
    severity=rule_types.Severity.WARNING,
    title="NCCL_TOPO_FILE or NCCL_GRAPH_FILE is not on a mounted path",
    explanation=(
        "Both files must be readable inside the container and match the node type. A missing topology file causes "
        "only an INFO line, and its tuning is lost; a missing graph file fails the start. The policy's "
        "topologyFile, and files in the directories of known images, are not reported."
    ),
    source="NVIDIA/nccl src/graph/topo.cc and src/graph/search.cc",
    good=(
        rule_types.build_example(
            "mounted",
            settings.build_env(NCCL_TOPO_FILE="/opt/microsoft/ndv5-topo.xml"),
            capabilities=frozenset(),
            mounts={"/opt/microsoft": "hostPath"},
        ),
        rule_types.build_example("no pod known", settings.build_env(NCCL_TOPO_FILE="/opt/microsoft/ndv5-topo.xml")),
    ),
    bad=(
        rule_types.build_example(
            "not mounted", settings.build_env(NCCL_TOPO_FILE="/opt/topo.xml"), capabilities=frozenset()
        ),
        rule_types.build_example(
            "mounted at another path",
            settings.build_env(NCCL_GRAPH_FILE="/data2/graph.xml"),
            capabilities=frozenset(),
            mounts={"/data": "other"},
        ),
    ),
    check=_check,
)
