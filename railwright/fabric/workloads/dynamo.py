"""Dynamo's DynamoGraphDeployment: the components of an inference service, each with a pod template.

Its operator copies labels and annotations of a component's template to the pods, whether Grove or a Deployment creates
them (ai-dynamo/dynamo, deploy/operator/internal/dynamo/graph.go and graph_test.go, as of November 2026).
"""

from collections.abc import Iterator

from railwright.fabric.workloads import frameworks


def _create_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield the pods of a component; their number is unknown where each replica has several nodes (`multinode`)."""
    part = origin.context.name
    count = None if origin.parent.get("multinode") else origin.parent.get("replicas", 1)
    yield frameworks.CreatedPods(f"component {part}", count, f"-{part.lower()}-")


KIND = frameworks.WorkloadKind(
    "nvidia.com",
    "v1beta1",
    "DynamoGraphDeployment",
    (frameworks.TemplatePath(("spec", "components", frameworks.EACH, "podTemplate")),),
    is_injected=False,
    create_pods=_create_pods,
)
