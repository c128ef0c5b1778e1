"""Grove's PodCliqueSet: the roles of an inference service, each a clique of equal pods.

A clique has the pod's labels and annotations beside its `spec.podSpec`, and Grove copies them to the pods
(ai-dynamo/grove at fcc3b3bb, operator/internal/controller/podclique/components/pod/pod.go, getLabels). The PodClique of
a role controls its pods, so each role is a gang.
"""

from collections.abc import Iterator

from railwright.fabric.workloads import frameworks

POD_SPEC = ("spec", "podSpec")  # of a clique


def _create_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield the pods of a clique: SET-REPLICA-CLIQUE-..., in each replica of the set."""
    part = origin.context.name
    pods = frameworks.get_mapping(origin.ancestors[-1], "spec").get("replicas", 1)
    sets = frameworks.get_mapping(origin.ancestors[0], "spec").get("replicas", 1)
    count = pods * sets if isinstance(pods, int) and isinstance(sets, int) else None
    yield frameworks.CreatedPods(f"clique {part}", count, f"-0-{part}-")


KIND = frameworks.WorkloadKind(
    "grove.io",
    "v1alpha1",
    "PodCliqueSet",
    (frameworks.TemplatePath(("spec", "template", "cliques", frameworks.EACH), pod_spec=POD_SPEC),),
    is_injected=False,
    create_pods=_create_pods,
)
