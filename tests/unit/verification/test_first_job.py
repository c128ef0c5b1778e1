"""The shipped job of nccl-tests, whose only network setting is one label."""

import itertools

from admitting import EXAMPLES

from railwright.cli import object_files
from railwright.cli.explanation import previews, templates
from railwright.cluster import policies

POLICY = policies.read((EXAMPLES / "360-roce" / "policy.yaml").read_text())


def test_the_ranks_of_the_nccl_tests_job_get_all_rails_and_log_their_network():
    text = (EXAMPLES / "nccl-tests" / "mpijob.yaml").read_text()
    (job,) = object_files.read_manifest(text, "mpijob.yaml")
    caches = previews.fill_caches({})
    launcher, worker = (
        previews.preview_admission(pod, POLICY, caches) for pod in templates.list_templates(job, "prod")
    )
    assert (launcher.outcome, launcher.rails) == ("patched", ())
    assert (worker.outcome, worker.template.pods) == ("patched", 2)
    assert list(worker.rails) == [rail.name for rail in POLICY.document.fabrics["roce"].rails]
    (container,) = launcher.after["spec"]["containers"]
    forwarded = {name for option, name in itertools.pairwise(container["command"]) if option == "-x"}
    assert {entry["name"] for entry in container["env"] if entry["name"].startswith("NCCL_DEBUG")} <= forwarded
    assert "NCCL_IB_HCA" not in text
