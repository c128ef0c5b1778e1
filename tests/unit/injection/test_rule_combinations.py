"""Cases where two rules of docs/interface.md 1 to 3 apply at once."""

import admitting
import pytest
from admitting import (
    SHAPES,
    admitted,
    cpu,
    env,
    fabric,
    gpus,
    known,
    limits,
    messages,
    planned,
    pod,
    record,
    refusal,
    view,
)

from railwright.fabric import node_views, views
from railwright.fabric.injection import binding, pod_changes

NETWORKS = "k8s.v1.cni.cncf.io/networks"
CONF = "railwright.io/nccl.conf"
UNNAMED = "[{name: rail0}, {name: rail1}]"


def add_labels(tree: dict, **labels: str) -> dict:
    tree["metadata"]["labels"] |= labels
    return tree


def paths(tree: dict, container: int = 0) -> list[str]:
    return [mount["mountPath"] for mount in tree["spec"]["containers"][container].get("volumeMounts", [])]


def bound(tree: dict, by, labels: dict) -> dict:
    node = node_views.Node(metadata=views.ObjectMeta(name="n", labels_or_none=labels))
    written = binding.bind(view(tree), by, known(), node)
    return dict(written.annotations) if written else {}


# --- opt-in (docs/interface.md 1) -------------------------------------------------------------------------


def test_a_namespace_that_is_not_known_yet_is_matched_by_name():
    policy = fabric("    namespaces: {matchLabels: {kubernetes.io/metadata.name: prod}}\n")
    assert isinstance(planned(pod(), policy, known(namespace_labels=None)), pod_changes.Injection)
    assert isinstance(planned(pod(), policy, known(namespace_labels={"team": "ai"})), pod_changes.Injection)
    assert "may not be used in namespace web" in refusal(pod(), policy, known("web", namespace_labels={}))


@pytest.mark.parametrize(
    "expression", ["{key: closed, operator: DoesNotExist}", "{key: t, operator: NotIn, values: [x]}"]
)
def test_a_selector_that_forbids_labels_does_not_match_an_unknown_namespace(expression):
    policy = fabric(f"    namespaces: {{matchExpressions: [{expression}]}}\n")
    assert "not known yet" in refusal(pod(), policy, known(namespace_labels=None, watched=True))
    assert isinstance(planned(pod(), policy, known(namespace_labels={})), pod_changes.Injection)


def test_a_wrong_rails_annotation_is_refused_on_a_pod_that_gets_no_rails_too():
    tree = pod(cpu(), annotations={"railwright.io/rails": "rail9"})
    assert "'rail9' is not a rail" in refusal(
        add_labels(tree, **{"training.kubeflow.org/job-role": "launcher"}), fabric()
    )


def test_a_rails_annotation_may_stay_on_a_job_that_is_switched_to_tcp():
    tree = pod(annotations={"railwright.io/rails": "rail0"})
    assert planned(tree, fabric(transport="tcp", rails="")).rails == ()


# --- devices (docs/interface.md 3.2) ----------------------------------------------------------------------


def test_with_skip_networks_an_attachment_to_a_missing_network_is_a_warning():
    tree = pod(annotations={NETWORKS: "lan2", "railwright.io/skip": "networks"})
    warnings = messages(planned(tree, fabric(), known(networks={})))
    assert any("NetworkAttachmentDefinition prod/lan2 of entry 1 does not exist" in warning for warning in warnings)


def test_a_rail_whose_network_draws_on_another_pool_than_the_policy_names_gets_both():
    """Multus would find no device for the attachment, and the pod would never start."""
    policy = fabric(rails="[{name: rail0, network: prod/vf, resource: x.y/shared}]")
    after = admitted(pod(), policy, known(networks={("prod", "vf"): "x.y/vf"}))
    assert {name: limits(after)[name] for name in ("x.y/shared", "x.y/vf")} == {"x.y/shared": "1", "x.y/vf": "1"}


# --- delivery (docs/interface.md 3.3) ---------------------------------------------------------------------


def test_the_list_is_written_if_only_the_placement_does_not_fit():
    policy = fabric(top=SHAPES, rails=UNNAMED)
    after = admitted(pod(), policy)
    size = sum(len(key) + len(value) for key, value in after["metadata"]["annotations"].items())
    after["metadata"]["annotations"]["x"] = "y" * (256 * 1024 - size - 1)
    assert bound(after, policy, {"gpu": "b"}) == {CONF: "NCCL_IB_HCA==mlx5_2,mlx5_3\n"}


def test_a_shape_without_devices_leaves_the_list_to_the_binding():
    policy = fabric(top=SHAPES.replace(", devices: {rail0: mlx5_2, rail1: mlx5_3}", ""), rails=UNNAMED)
    after = admitted(pod(), policy)
    assert "NCCL_IB_HCA" not in env(after)
    assert bound(after, policy, {"gpu": "a"})[CONF] == "NCCL_IB_HCA==mlx5_0,mlx5_1\n"
    assert bound(after, policy, {"gpu": "b"})[CONF] == ""


@pytest.mark.parametrize("transport", ["efa", "erdma"])
def test_a_transport_that_names_no_devices_by_node_waits_for_none(transport):
    after = admitted(pod(), fabric(top=SHAPES, rails=UNNAMED, transport=transport))
    assert "/etc/nccl.conf" not in paths(after)
    assert "env.NCCL_IB_HCA" not in record(after)["skipped"]


def test_a_device_list_that_no_line_of_the_file_can_hold_does_not_break_the_binding():
    many = [f"rail{number}" for number in range(40)]
    top = "nodeShapes:\n" + "".join(
        f"- {{name: {name}, match: {{gpu: {name}}}, devices: {{{devices}}}}}\n"
        for name, devices in (
            ("a", ", ".join(f"{rail}: mlx5_{rail}" for rail in many)),
            ("b", ", ".join(f"{rail}: {rail}{'x' * 30}" for rail in many)),
        )
    )
    policy = fabric(top=top, rails=str([{"name": rail} for rail in many]))
    assert CONF in bound(admitted(pod(), policy), policy, {"gpu": "a"})
    assert bound(admitted(pod(), policy), policy, {"gpu": "b"})[CONF] == ""


@pytest.mark.parametrize(
    ("labels", "mounted", "file"),
    [
        (
            {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-role": "worker"},
            None,
            True,
        ),
        (
            {"training.kubeflow.org/operator-name": "mpijob-controller", "training.kubeflow.org/job-role": "worker"},
            None,
            False,
        ),
        ({}, "/root/.ssh", True),
        ({}, "/root/.ssh/id_rsa", True),
        ({}, "/root/.sshd", False),
        ({}, "/etc/keys", False),
        ({"volcano.sh/job-name": "train"}, "/etc/keys", True),  # the volume of Volcano's ssh plugin
    ],
)
def test_ranks_that_ssh_starts_get_the_file_and_env_besides(labels, mounted, file):
    mounts = {"volumeMounts": [{"name": "train-ssh", "mountPath": mounted}]} if mounted else {}
    tree = pod(gpus(8, **mounts), volumes=[{"name": "train-ssh", "secret": {"secretName": "keys"}}])
    after = admitted(add_labels(tree, **labels), fabric())
    assert ("/etc/nccl.conf" in paths(after)) is file
    assert ("NCCL_IB_HCA" in after["metadata"]["annotations"].get(CONF, "")) is file
    assert "NCCL_IB_HCA" in env(after)


def test_a_ray_worker_that_has_the_id_of_a_submission_is_a_rank():
    own = [{"name": "RAY_JOB_SUBMISSION_ID", "value": "x"}]
    worker = add_labels(pod(gpus(1, env=own)), **{"ray.io/node-type": "worker"})
    assert record(admitted(worker, fabric()))["role"] == "worker"
    assert record(admitted(pod(gpus(1, env=own)), fabric()))["role"] == "worker"


# --- the plan as a whole ----------------------------------------------------------------------------------


def test_annotations_of_a_pod_that_did_not_opt_in_are_not_checked():
    nonsense = {"railwright.io/rails": "0", "railwright.io/placement": "x", "railwright.io/skip": "?", NETWORKS: "a,,b"}
    assert planned(pod(label=None, annotations=nonsense), fabric()) == pod_changes.NotOptedIn()
    assert planned(pod(label="none", annotations=nonsense), fabric()) == pod_changes.NotOptedIn()


def test_a_changed_policy_adds_only_what_is_missing():
    once = admitted(pod(), fabric())
    policy = admitting.fabric("    env: {NCCL_IB_HCA: other, NEW: '1'}\n")
    again = admitted(once, policy)
    assert env(again)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert env(again)["NEW"] == "1"
    assert record(again)["policy"] == policy.digest
    assert record(again)["kept"] == {"c": ["NCCL_IB_HCA"]}


# --- pods without accelerators in a job whose label counts for all of them -----------------------------------

TENSORFLOW = {"training.kubeflow.org/operator-name": "tfjob-controller", "training.kubeflow.org/job-name": "j"}
SUBMITTING = "if ! ray job status --address a x; then ray job submit --address a -- python t.py; fi"


@pytest.mark.parametrize(
    "labels",
    [
        TENSORFLOW | {"training.kubeflow.org/replica-type": "ps"},
        {"ray.io/node-type": "worker", "ray.io/group": "cpu"},
        {"volcano.sh/job-name": "j", "volcano.sh/task-spec": "tensorboard"},
        {},
    ],
)
def test_a_pod_that_is_marked_gets_rails_with_an_accelerator_or_by_annotation_only(labels):
    marked = {"railwright.io/rails": "none"}
    for container, annotations, role in (
        (cpu(), marked, "excluded"),
        (cpu(), {}, "worker"),
        (gpus(8), marked, "worker"),
        (cpu(), {**marked, "railwright.io/containers": "c"}, "worker"),
    ):
        tree = pod(container, annotations=annotations)
        tree["metadata"]["labels"] |= labels
        after = admitted(tree, fabric())
        assert record(after)["role"] == role
        assert ("nvidia.com/mlx5_0" in limits(after)) == (role == "worker")
        assert planned(after, fabric()).changes == ()


@pytest.mark.parametrize(
    "container",
    [
        cpu(env=[{"name": "RAY_JOB_SUBMISSION_ID", "value": "x"}]),
        cpu(command=["/bin/bash", "-ce", "--"], args=[SUBMITTING]),
        cpu(command=["ray", "job", "submit", "--", "python", "t.py"]),
    ],
)
def test_the_submitter_of_a_ray_job_gets_no_rails_however_its_template_is_written(container):
    after = admitted(pod(container), fabric())
    assert record(after)["role"] == "submitter"
    assert after["spec"] == pod(container)["spec"]


@pytest.mark.parametrize("written", ["file", " file", "file\n"])
def test_blanks_around_the_value_of_delivery_are_ignored(written):
    assert (
        "railwright.io/nccl.conf"
        in admitted(pod(annotations={"railwright.io/delivery": written}), fabric())["metadata"]["annotations"]
    )
