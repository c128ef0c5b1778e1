"""Finds which scheduler decides where the pods of a workload run."""

from collections.abc import Iterable

from railwright.fabric import views
from railwright.fabric.injection import templates

KUEUE, KUBE_SCHEDULER, VOLCANO, KAI = "Kueue", "kube-scheduler", "Volcano", "KAI"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # label of a workload that Kueue admits
KAI_NAME = "kai-scheduler"  # in spec.schedulerName of pods
_BY_NAME = {"volcano": VOLCANO, KAI_NAME: KAI}  # by spec.schedulerName; others are profiles of kube-scheduler
_VOLCANO_JOB = "Job.batch.volcano.sh"  # its pods have Volcano as scheduler by default


def find_scheduler(workload: templates.Workload, pods: Iterable[views.Pod]) -> str:
    """Return the scheduler that decides the domain of a gang: Kueue before pods exist, otherwise that of its pods."""
    if QUEUE_NAME in workload.metadata.labels:
        return KUEUE
    names = {pod.spec.scheduler_name for pod in pods} - {""}
    if not names:
        return VOLCANO if workload.kind.display_name == _VOLCANO_JOB else KUBE_SCHEDULER
    return ", ".join(sorted({_BY_NAME.get(name, KUBE_SCHEDULER) for name in names}))
