"""KubeRay: RayCluster, RayJob and RayService."""

from collections.abc import Iterator

from railwright.fabric.workloads import frameworks

NODE_TYPE = "ray.io/node-type"
_CLUSTER = "ray.io/cluster"
_GROUP_LABEL = "ray.io/group"
_GROUP = "ray.io"
_HEAD, _WORKER = "head", "worker"  # node types


def _make_metadata_builder(node_type: str) -> frameworks.BuildMetadata:
    """Return the function that builds KubeRay's labels (source: controllers/ray/common/pod.go, labelPod)."""
    return lambda context: frameworks.ControllerMetadata({_CLUSTER: context.workload, NODE_TYPE: node_type})


def _list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    if origin.metadata.labels[NODE_TYPE] == _HEAD:
        yield frameworks.CreatedPods("head", name="-head-", labels={_GROUP_LABEL: "headgroup"})
        return
    part, parent = origin.context.name, origin.parent
    count = frameworks.multiply(parent.get("replicas", 1), parent.get("numOfHosts", 1))
    yield frameworks.CreatedPods(f"worker group {part}", count, name=f"-{part}-worker-", labels={_GROUP_LABEL: part})


def _make_kind(name: str, *steps: str, is_injected: bool = False) -> frameworks.WorkloadKind:
    """Return the kind whose objects have the spec of a RayCluster at `steps`."""
    return frameworks.WorkloadKind(
        _GROUP,
        "v1",
        name,
        (
            frameworks.TemplatePath(
                (*steps, "headGroupSpec", "template"), build_metadata=_make_metadata_builder(_HEAD)
            ),
            frameworks.TemplatePath(
                (*steps, "workerGroupSpecs", frameworks.EACH, "template"),
                name_field="groupName",
                build_metadata=_make_metadata_builder(_WORKER),
            ),
        ),
        is_injected=is_injected,
        copies_label=True,  # KubeRay copies it into the RayCluster
        list_created_pods=_list_created_pods,
    )


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        _make_kind("RayCluster", "spec", is_injected=True),
        _make_kind("RayJob", "spec", "rayClusterSpec"),
        _make_kind("RayService", "spec", "rayClusterConfig"),
    ),
    role_labels=(NODE_TYPE,),
    roles={NODE_TYPE: {_HEAD: frameworks.HEAD}},
)
