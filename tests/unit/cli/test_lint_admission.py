"""`railwright lint` with a policy judges the pods that a controller creates, as admission does."""

import admitting
import pytest
import yaml

from railwright.cli import linted_manifests, linting
from railwright.cli.explanation import previews, templates
from railwright.fabric.injection import keys
from railwright.fabric.lint import engine

JOBS = sorted(admitting.EXAMPLES.rglob("job.yaml"))
SITE = admitting.read_policy((admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text())
VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: j, namespace: ai-training, labels: {{railwright.io/fabric: roce-derived}}}}
spec:
  plugins: {{mpi: ["--master=first"]}}
  tasks:
  - {{name: {task}, replicas: 1, template: {{spec: {{containers: [{{name: c, image: i}}]}}}}}}
  - name: ranks
    replicas: 2
    template:
      metadata: {{annotations: {{railwright.io/rails: "4"}}}}
      spec: {{containers: [{{name: c, image: i, resources: {{limits: {{{resource}: 8}}}}}}]}}
"""


def list_findings(text, policy):
    report = linting.check_manifests(linted_manifests.read_manifests("job.yaml", text), policy)
    return [item.finding for item in report.sorted_findings]


def list_answers(text, policy):
    """Return the codes of admission's answers in the findings of lint, rejections as M02."""
    answers = {"M02", "M03"}
    return {finding.name or finding.code for finding in list_findings(text, policy) if finding.code in answers}


def preview_answers(text, policy):
    """Return the codes of the warnings that `railwright explain` shows, except those of lint's rules."""
    caches = previews.fill_caches({})
    pods = [
        pod for tree in yaml.safe_load_all(text) for pod in templates.list_templates(tree, templates.DEFAULT_NAMESPACE)
    ]
    shown = [previews.preview_admission(pod, policy, caches) for pod in pods]
    assert all(preview.message == "" for preview in shown)  # none is rejected
    ignored = keys.CODES | {rule.code for rule in engine.RULES}
    return {warning.code for preview in shown for warning in preview.warnings} - ignored


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.parent.name)
def test_lint_reports_the_warnings_of_admission_for_each_example(job):
    text, policy = job.read_text(), admitting.read_policy((job.parent / "policy.yaml").read_text())
    assert list_answers(text, policy) == preview_answers(text, policy)


@pytest.mark.parametrize(
    ("task", "resource", "answers"),
    [
        ("first", "nvidia.com/gpu", set()),  # the launcher, by a variable of Volcano's plugin
        ("storage", "nvidia.com/gpu", set()),  # not a rank, because others have the accelerators
        ("storage", "cpu", {"NoAccelerator"}),
    ],
)
def test_lint_derives_the_role_of_a_task_from_the_controller_and_the_other_tasks(task, resource, answers):
    job = VOLCANO.format(task=task, resource=resource)
    assert list_answers(job, SITE) == preview_answers(job, SITE) == answers
