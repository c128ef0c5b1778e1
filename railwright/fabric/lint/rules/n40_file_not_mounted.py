"""N40: a topology or graph file that nothing mounts."""

from collections.abc import Iterator

from railwright.fabric.lint import model, settings, taken

_EFFECTS = {
    "NCCL_TOPO_FILE": "NCCL ignores a topology file that is missing",
    "NCCL_GRAPH_FILE": "NCCL fails at start when the graph file is missing",
}
_IN_IMAGES = ("/opt/amazon/",)  # where images of AWS hold those of their plugin
_DEFAULT = "/var/run/nvidia-topologyd/virtualTopology.xml"  # where NCCL looks anyway


def _check(ranks: model.Ranks) -> Iterator[model.Complaint]:
    if ranks.capabilities is None:  # no pod is seen, so neither are its mounts
        return
    for setting, value in settings.list_values(ranks):
        path = settings.bare(value)
        if (
            setting.name not in _EFFECTS
            or not path
            or _present(path, ranks)
            or taken.is_policy_value(ranks, setting.name)
        ):
            continue
        yield settings.complaint(
            setting, f"no volume is mounted there, and {_EFFECTS[setting.name]}; mount it, unless the image holds it"
        )


def _present(path: str, ranks: model.Ranks) -> bool:
    mounted = any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in ranks.mounts)
    return mounted or path == _DEFAULT or path.startswith(_IN_IMAGES)


RULE = model.Rule(
    code="N40",
    name="file-not-mounted",
    severity=model.Severity.WARNING,
    title="NCCL_TOPO_FILE or NCCL_GRAPH_FILE is not on a mounted path",
    explanation=(
        "Both must be readable inside the container and belong to the node type. A missing topology file is only an "
        "INFO line, and the tuning it stands for is gone; a missing graph file fails the start. What the policy gives "
        "as topologyFile, and files in places of known images, are believed."
    ),
    source="NVIDIA/nccl src/graph/topo.cc and src/graph/search.cc",
    good=(
        model.Example(
            "mounted",
            model.Ranks(
                "a rank",
                settings.env(NCCL_TOPO_FILE="/opt/microsoft/ndv5-topo.xml"),
                capabilities=frozenset(),
                mounts={"/opt/microsoft": "hostPath"},
            ),
        ),
        model.Example(
            "no pod is seen", model.Ranks("a rank", settings.env(NCCL_TOPO_FILE="/opt/microsoft/ndv5-topo.xml"))
        ),
    ),
    bad=(
        model.Example(
            "not mounted",
            model.Ranks("a rank", settings.env(NCCL_TOPO_FILE="/opt/topo.xml"), capabilities=frozenset()),
        ),
        model.Example(
            "mounted beside it",
            model.Ranks(
                "a rank",
                settings.env(NCCL_GRAPH_FILE="/data2/graph.xml"),
                capabilities=frozenset(),
                mounts={"/data": "other"},
            ),
        ),
    ),
    check=_check,
)
