"""What an opted-in pod is to get: fabric, role, containers, rails, wishes; the common ground of all concerns.

Owns the order in which these follow from each other. The concerns beside this file turn an aim into changes; binding
uses it too, so that both speak of the same rails.
"""

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import accelerators, facts, holdings, opt_in, rails, roles, targets, wishes
from railwright.fabric.policy import model as policies

_NO_CONTEXT = views.SecurityContext()


class Aim(msgspec.Struct, frozen=True):
    """One pod, seen through one policy and the facts of one moment."""

    pod: views.Pod
    policy: policies.Policy
    known: facts.Facts
    fabric_name: str
    fabric: policies.Fabric
    role: roles.Role
    targets: tuple[int, ...]
    rails: tuple[rails.Chosen, ...]
    wishes: wishes.Wishes

    @property
    def document(self) -> policies.FabricPolicy:
        """The policy's document."""
        return self.policy.document

    @property
    def host_network(self) -> bool:
        """True where the pod has no network namespace of its own."""
        return bool(self.pod.spec.host_network)

    def runs_as_root(self, index: int) -> bool:
        """False where pod or container say otherwise; an image's own user is not known."""
        of_pod = self.pod.spec.security_context or _NO_CONTEXT
        own = self.container(index).security_context or _NO_CONTEXT
        user = of_pod.run_as_user if own.run_as_user is None else own.run_as_user
        other = of_pod.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
        return not user and not other

    def container(self, index: int) -> views.Container:
        """An app container."""
        return self.pod.spec.containers[index]


def take(pod: views.Pod, policy: policies.Policy, known: facts.Facts, name: str, wished: wishes.Wishes) -> Aim:
    """The aim for a pod that opted in to fabric `name`. Raises RefusedError."""
    document = policy.document
    fabric = document.fabrics[name]
    computing = accelerators.accelerated(pod, document.accelerators)
    chosen = rails.choose(pod, fabric, document, known)  # a wrong annotation is refused whatever the role
    held = holdings.weigher(name, document, chosen)

    def shown_rank() -> bool:
        """A container that has devices or mounts of the fabric was given them as a rank, with its template."""
        return known.job_accelerated is False or any(holdings.equipped(held(each)) for each in pod.spec.containers)

    role = roles.role_of(pod, document.roles, accelerated=bool(computing), shown_rank=shown_rank)
    return Aim(
        pod=pod,
        policy=policy,
        known=known,
        fabric_name=name,
        fabric=fabric,
        role=role,
        targets=targets.chosen(pod, computing, held),
        rails=chosen if role.rails else (),
        wishes=wished,
    )


def find(pod: views.Pod, policy: policies.Policy, known: facts.Facts) -> Aim | None:
    """The aim for a pod, None where it did not opt in. Raises RefusedError."""
    name = opt_in.fabric_of(pod, policy.document, known)
    return None if name is None else take(pod, policy, known, name, wishes.read(pod))
