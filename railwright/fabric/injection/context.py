"""Builds the context of one injection: fabric, role, containers, rails and user options of a pod that opted in.

Nothing in it changes while the mutators change the pod. Binding builds the same context, so that both use the same
rails.
"""

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import (
    accelerators,
    facts,
    injection_score,
    rails,
    roles,
    targets,
    user_options,
)
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies


class InjectionContext(msgspec.Struct, frozen=True):
    """The inputs of all mutators for one pod, beside the pod as it is by then."""

    policy: policies.Policy
    known: facts.ClusterFacts  # the cluster
    fabric_name: str
    fabric: policies.Fabric
    role: roles.Role
    targets: tuple[int, ...]
    rails: tuple[compiled.ResolvedRail, ...]
    options: user_options.UserOptions
    accelerated: bool  # an app container requests an accelerator, or uses a claim of the pod's author

    @property
    def document(self) -> policies.FabricPolicy:
        """Return the policy's document."""
        return self.policy.document


def build(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts, name: str, options: user_options.UserOptions
) -> InjectionContext:
    """Build the context of a pod that opted in to fabric `name`. Raises RefusedError."""
    document = policy.document
    compiled_policy = policy.compile_once(compiled.compile_policy)
    fabric = document.fabrics[name]
    accelerated = accelerators.find_containers(pod, document.accelerators)
    selected = rails.select_rails(
        pod, compiled_policy.fabrics[name], document, cluster
    )  # rejects an invalid annotation for every role
    measure_injection = injection_score.build_scorer(name, policy, selected)

    def has_injection() -> bool:
        """True if a container has devices or mounts of the fabric, which it got as a rank of its template."""
        return cluster.job_accelerated is False or any(
            injection_score.has_injection(measure_injection(container)) for container in pod.spec.containers
        )

    role = roles.find_role(
        pod,
        document.roles,
        accelerated=bool(accelerated),
        job_accelerated=bool(cluster.job_accelerated),
        is_known_rank=has_injection,
    )
    return InjectionContext(
        policy=policy,
        known=cluster,
        fabric_name=name,
        fabric=fabric,
        role=role,
        targets=targets.select_targets(pod, accelerated, measure_injection),
        rails=selected if role.rails else (),
        options=options,
        accelerated=bool(accelerated),
    )
