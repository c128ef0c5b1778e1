"""Builds the context of one injection: fabric, role, containers, rails and user options of a pod that opted in.

Each mutator turns the context into changes. Binding builds the same context, so that both use the same rails.
"""

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import (
    accelerators,
    facts,
    injection_score,
    opt_in,
    rails,
    roles,
    targets,
    user_options,
)
from railwright.fabric.policy import model as policies

_NO_CONTEXT = views.SecurityContext()


class InjectionContext(msgspec.Struct, frozen=True):
    """The inputs of all mutators for one pod."""

    pod: views.Pod
    policy: policies.Policy
    known: facts.Facts  # the cluster
    fabric_name: str
    fabric: policies.Fabric
    role: roles.Role
    targets: tuple[int, ...]
    rails: tuple[rails.Chosen, ...]
    options: user_options.UserOptions

    @property
    def document(self) -> policies.FabricPolicy:
        """Return the policy's document."""
        return self.policy.document

    @property
    def host_network(self) -> bool:
        """True if the pod uses the host's network namespace."""
        return bool(self.pod.spec.host_network)

    def runs_as_root(self, index: int) -> bool:
        """True unless the pod or the container sets another user. The user of the image is unknown and ignored."""
        pod_context = self.pod.spec.security_context or _NO_CONTEXT
        container_context = self.container(index).security_context or _NO_CONTEXT
        user = pod_context.run_as_user if container_context.run_as_user is None else container_context.run_as_user
        must_not_be_root = (
            pod_context.run_as_non_root
            if container_context.run_as_non_root is None
            else container_context.run_as_non_root
        )
        return not user and not must_not_be_root

    def container(self, index: int) -> views.Container:
        """Return an app container."""
        return self.pod.spec.containers[index]


def build(
    pod: views.Pod, policy: policies.Policy, cluster: facts.Facts, name: str, options: user_options.UserOptions
) -> InjectionContext:
    """Build the context of a pod that opted in to fabric `name`. Raises RefusedError."""
    document = policy.document
    fabric = document.fabrics[name]
    accelerated = accelerators.find_containers(pod, document.accelerators)
    selected = rails.select_rails(pod, fabric, document, cluster)  # rejects an invalid annotation for every role
    measure_injection = injection_score.build_scorer(name, document, selected)

    def has_injection() -> bool:
        """True if a container has devices or mounts of the fabric, which it got as a rank of its template."""
        return cluster.job_accelerated is False or any(
            injection_score.has_injection(measure_injection(container)) for container in pod.spec.containers
        )

    role = roles.role_of(pod, document.roles, accelerated=bool(accelerated), is_known_rank=has_injection)
    return InjectionContext(
        pod=pod,
        policy=policy,
        known=cluster,
        fabric_name=name,
        fabric=fabric,
        role=role,
        targets=targets.select_targets(pod, accelerated, measure_injection),
        rails=selected if role.rails else (),
        options=options,
    )


def build_if_opted_in(pod: views.Pod, policy: policies.Policy, cluster: facts.Facts) -> InjectionContext | None:
    """Build the context of a pod. Return None if the pod did not opt in. Raises RefusedError."""
    name = opt_in.find_fabric(pod, policy.document, cluster)
    return None if name is None else build(pod, policy, cluster, name, user_options.read(pod))
