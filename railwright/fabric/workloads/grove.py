"""Grove's PodCliqueSet: the roles of an inference service, each a clique of equal pods.

A clique has the pod's labels and annotations beside its `spec.podSpec`, and Grove copies them to the pods
(ai-dynamo/grove at fcc3b3bb, operator/internal/controller/podclique/components/pod/pod.go, getLabels). The PodClique of
a role controls its pods. Cliques of a scaling group are scaled together, such as a leader and its workers.
"""

from collections.abc import Iterator

from railwright.fabric.workloads import frameworks

POD_SPEC = ("spec", "podSpec")  # of a clique
_DEFAULT_PODS = 1  # operator/internal/webhook/admission/pcs/defaulting/podcliqueset.go


def _list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield the pods of a clique: SET-REPLICA-CLIQUE-..., in each replica of the set."""
    part = origin.context.name
    pods = frameworks.get_mapping(origin.ancestors[-1], "spec").get("replicas", _DEFAULT_PODS)
    sets = frameworks.get_mapping(origin.ancestors[0], "spec").get("replicas", 1)
    yield frameworks.CreatedPods(f"clique {part}", pods, sets, f"-0-{part}-")


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "grove.io",
            "v1alpha1",
            "PodCliqueSet",
            (frameworks.TemplatePath(("spec", "template", "cliques", frameworks.EACH), pod_spec=POD_SPEC),),
            list_created_pods=_list_created_pods,
        ),
    ),
)


# --- Dynamo's DynamoGraphDeployment: the components of an inference service, each with a pod template ---------

# Its operator copies labels and annotations of a component's template to the pods, whether Grove or a Deployment
# creates them (ai-dynamo/dynamo, deploy/operator/internal/dynamo/graph.go and graph_test.go, as of November 2026).


def _list_component_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield the pods of a component; their number is unknown where each replica has several nodes (`multinode`)."""
    part = origin.context.name
    count = None if origin.parent.get("multinode") else origin.parent.get("replicas", 1)
    yield frameworks.CreatedPods(f"component {part}", count, name=f"-{part.lower()}-")


DYNAMO = frameworks.WorkloadKind(
    "nvidia.com",
    "v1beta1",
    "DynamoGraphDeployment",
    (frameworks.TemplatePath(("spec", "components", frameworks.EACH, "podTemplate")),),
    is_injected=False,
    list_created_pods=_list_component_pods,
)
