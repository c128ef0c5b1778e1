"""Decides by the policy which roles of pods get the fabric (docs/interface.md 3).

`railwright.fabric.workloads.roles` finds the role that a framework shows.
"""

from collections.abc import Callable

import msgspec

from railwright.fabric import names, views
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, volcano
from railwright.fabric.workloads import roles as shown_roles


class Role(msgspec.Struct, frozen=True):
    """The role of a pod. `no_rails` is the reason why it gets no rails, None if it gets the fabric.

    `needs_launcher_settings`: it gets the interface settings of mpirun.
    """

    name: str
    no_rails: reason.Reason | None = None
    needs_launcher_settings: bool = False

    @property
    def rails(self) -> bool:
        """True if the pod gets the fabric."""
        return self.no_rails is None


_WORKER = Role(frameworks.WORKER)
# a rank that also starts the other ranks
_ACTING_LAUNCHER = Role(frameworks.LAUNCHER, needs_launcher_settings=True)
HELPER = Role(frameworks.EXCLUDED, reason.make(AdmissionCode.HELPER_POD))
_LAUNCHERS_EXCLUDED = reason.make(AdmissionCode.EXCLUDED_BY_POLICY, key="roles.launchers", task="")
_IDLE_LAUNCHER = reason.make(AdmissionCode.LAUNCHER_WITHOUT_ACCELERATORS)
_HEAD = Role(frameworks.HEAD)
_WITHOUT_RAILS = {
    frameworks.HEAD: Role(
        frameworks.HEAD, reason.make(AdmissionCode.HEAD_WITHOUT_ACCELERATORS), needs_launcher_settings=True
    ),
    frameworks.INITIALIZER: Role(frameworks.INITIALIZER, reason.make(AdmissionCode.INITIALIZER)),
    frameworks.SUBMITTER: Role(frameworks.SUBMITTER, reason.make(AdmissionCode.SUBMITTER)),
}


def find_role(
    pod: views.Pod,
    roles: policies.Roles,
    *,
    accelerated: bool,
    job_accelerated: bool = False,
    is_known_rank: Callable[[], bool] = lambda: False,
) -> Role:
    """Return the role of a pod. `accelerated`: an app container requests an accelerator.

    `job_accelerated`: a template of its workload does. `is_known_rank` is called for a pod without accelerators that is
    a launcher only by its name, or that is no rank because others have them. It is True if other facts make it one.
    """
    task = pod.metadata.labels.get(volcano.TASK)
    decision = roles.volcano_tasks.get(task) if task else None
    if decision == "never":
        excluded = reason.make(AdmissionCode.EXCLUDED_BY_POLICY, key="roles.volcanoTasks", task=task or "")
        return Role(frameworks.EXCLUDED, excluded)
    name = shown_roles.find_role(pod, is_accelerated=accelerated)
    if not name and not accelerated and shown_roles.has_launcher_name(pod):
        if roles.launchers != "never" and (names.CONTAINERS in pod.metadata.annotations or is_known_rank()):
            return _ACTING_LAUNCHER
        name = frameworks.LAUNCHER
    if decision == "always":
        return _ACTING_LAUNCHER if name == frameworks.LAUNCHER else _WORKER
    if name == frameworks.LAUNCHER:
        return _decide_launcher(pod, roles, accelerated=accelerated)
    if name:
        return _HEAD if name == frameworks.HEAD and accelerated else _WITHOUT_RAILS[name]
    if accelerated or shown_roles.is_rank(pod):
        return _WORKER
    annotation = pod.metadata.annotations.get(names.RAILS)
    is_helper = (
        job_accelerated and not is_known_rank() if annotation is None else annotation.strip() == names.RAILS_NONE
    )
    return HELPER if is_helper else _WORKER


def _decide_launcher(pod: views.Pod, roles: policies.Roles, *, accelerated: bool) -> Role:
    is_rank = accelerated or shown_roles.is_launcher_rank(pod)
    if roles.launchers == "always" or (roles.launchers == "inject-if-accelerated" and is_rank):
        return _ACTING_LAUNCHER
    no_rails = _LAUNCHERS_EXCLUDED if roles.launchers == "never" else _IDLE_LAUNCHER
    return Role(frameworks.LAUNCHER, no_rails, needs_launcher_settings=True)
