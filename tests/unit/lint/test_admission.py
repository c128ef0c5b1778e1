"""Lint at admission: it checks the injected pod, returns a few short warnings, and never refuses."""

import re

import admitting
import meanings
import msgspec
import pytest
import yaml
from admitting import build_variables, list_messages

from railwright.fabric import admission
from railwright.fabric.injection import plan


def inject(tree, by, at=None):
    outcome = plan.plan_pod(admitting.decode_pod(tree), by, at or admitting.build_facts())
    assert isinstance(outcome, plan.Injection), outcome
    return outcome


def list_warnings(tree, by, at=None):
    """Return the warnings at admission, which are also those about the pod that was created."""
    injected = inject(tree, by, at)
    warnings = admission.lint_injected(injected, by)
    assert admission.lint_recorded(injected.pod, by) == warnings
    return tuple(warning.line for warning in warnings)


TOO_LONG = "its command line is too long to be linted during admission; `railwright lint` checks all of it"


def gpus(*entries, **more):
    return admitting.gpus(8, env=[*entries], **more)


def test_a_warning_about_a_users_variable_names_container_code_value_and_fix():
    policy, tree = admitting.fabric(), admitting.pod(gpus(*build_variables(NCCL_IB_RETRY_CNT="15")))
    assert list_messages(inject(tree, policy)) == ()
    whole = admission.plan_pod(admitting.decode_pod(tree), policy, admitting.build_facts())
    (warning,) = list_warnings(tree, policy)
    assert [warning] == [reported.line for reported in whole.warnings]
    assert warning == "N09: container c: NCCL_IB_RETRY_CNT=15: is out of range; it takes 0 to 7"


def test_a_policy_value_causes_no_warning_if_injected_or_set_by_the_author():
    policy = admitting.fabric('    env: {NCCL_IB_GID_INDEX: "5", NCCL_NET_GDR_LEVEL: sys}\n')
    assert list_warnings(admitting.pod(), policy) == ()
    assert list_warnings(admitting.pod(gpus(*build_variables(NCCL_IB_GID_INDEX="5"))), policy) == ()
    assert "N21" in list_warnings(admitting.pod(gpus(*build_variables(NCCL_IB_GID_INDEX="3"))), policy)[0]


@pytest.mark.parametrize(
    ("keys", "annotations", "is_reported"),
    [
        ("    resolve: auto\n", {}, True),
        ("    resolve: always\n", {}, True),
        ("    resolve: never\n", {}, False),
        ("    resolve: auto\n    nccl: {derive: false}\n", {}, False),
        ("    resolve: auto\n    env: {NCCL_IB_HCA: mlx5_99}\n", {}, False),
        ("    resolve: auto\n", {"railwright.io/skip": "preflight"}, False),
    ],
)
def test_an_authors_device_list_is_reported_if_it_overrides_devices_that_preflight_finds(
    keys, annotations, is_reported
):
    policy = admitting.fabric(keys, rails="[{name: rail0, resource: a.b/rdma}]")
    tree = admitting.pod(gpus(*build_variables(NCCL_IB_HCA="mlx5_99")), annotations=annotations)
    warnings = [warning for warning in list_warnings(tree, policy) if "NCCL_IB_HCA" in warning]
    text = "N16: container c: NCCL_IB_HCA=mlx5_99: overrides the devices that railwright finds in the pod"
    assert [warning.startswith(text) for warning in warnings] == [True] * is_reported


def test_an_authors_device_list_is_compared_with_each_node_shape_that_the_pod_may_use():
    rails = "[{name: rail0, resource: nvidia.com/mlx5_0}, {name: rail1, resource: nvidia.com/mlx5_1}]"
    policy = admitting.fabric(top=admitting.SHAPES, rails=rails)
    container = gpus(*build_variables(NCCL_IB_HCA="=mlx5_0,mlx5_1", NCCL_SOCKET_IFNAME="=eth0"))
    (warning,) = list_warnings(admitting.pod(container), policy)
    assert warning == (
        "N15: container c: NCCL_IB_HCA==mlx5_0,mlx5_1: selects none of the rails' devices on nodes of shape b: NCCL "
        "would use TCP. Device names differ by node: shape a has mlx5_0, mlx5_1, shape b has mlx5_2, mlx5_3; "
        "remove the list"
    )
    assert list_warnings(admitting.pod(container, nodeSelector={"gpu": "a"}), policy) == ()


def test_a_script_that_exports_another_value_than_the_policys_is_reported():
    policy = admitting.fabric('    env: {NCCL_IB_GID_INDEX: "5"}\n')
    (warning,) = list_warnings(admitting.pod(gpus(command=["sh", "-c", "export NCCL_IB_GID_INDEX=3; train"])), policy)
    assert "NCCL_IB_GID_INDEX=3" in warning


def test_a_second_admission_gives_the_same_warnings():
    policy = admitting.fabric()
    tree = admitting.pod(gpus(*build_variables(NCCL_IB_HCA="mlx5_7", NCCL_ALGO="Ring")))
    again = admitting.admit_pod(tree, policy)
    assert list_warnings(tree, policy) == list_warnings(again, policy) != ()


def test_a_socket_interface_is_checked_against_the_injected_networks():
    warnings = list_warnings(admitting.pod(gpus(*build_variables(NCCL_SOCKET_IFNAME="^lo"))), admitting.fabric())
    assert warnings[0].startswith("N18: container c: NCCL_SOCKET_IFNAME=^lo: selects net1, net2, a secondary network")
    warnings = list_warnings(admitting.pod(gpus(*build_variables(NCCL_SOCKET_IFNAME="ens3"))), admitting.fabric())
    assert "N17" in warnings[0]
    on_host = admitting.pod(gpus(*build_variables(NCCL_SOCKET_IFNAME="ens3")), hostNetwork=True)
    assert list_warnings(on_host, admitting.fabric()) == ()


@pytest.mark.parametrize(
    ("keys", "image", "expected"),
    [
        ("", "i", []),
        ("", "ghcr.io/coreweave/nccl-tests:1", ["N70: container c: NCCL_NET_PLUGIN is not set"]),
        ("    nccl: {derive: false}\n", "i", ["N18: container c: NCCL_SOCKET_IFNAME is not set"]),
    ],
)
def test_a_needed_variable_is_reported_if_neither_author_nor_policy_sets_it(keys, image, expected):
    warnings = list_warnings(admitting.pod(gpus(image=image)), admitting.fabric(keys))
    assert [warning.partition(",")[0] for warning in warnings] == expected


def test_an_injected_value_is_reported_if_the_pod_lacks_its_interface_or_devices():
    absent = list_warnings(admitting.pod(), admitting.fabric("    primaryInterface: bond0\n"))
    assert "N17: container c: NCCL_SOCKET_IFNAME==bond0: selects no interface of the pod" in absent[0]
    rails = "[{name: rail0, device: mlx5_0, resource: a.b/vf}, {name: rail1, device: mlx5_1, resource: a.b/vf}]"
    tree = admitting.pod(admitting.gpus(8), annotations={"railwright.io/skip": "devices"})
    tree["spec"]["containers"][0]["resources"]["limits"]["a.b/vf"] = "1"
    (few,) = list_warnings(tree, admitting.fabric(rails=rails))
    assert few.startswith("N15: container c: NCCL_IB_HCA==mlx5_0,mlx5_1: names 2 devices, but the container requests 1")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            "    nccl: {addressRange: 10.0.0.0/8}\n    env: {NCCL_IB_ADDR_FAMILY: AF_INET6}\n",
            "N10: container c: NCCL_IB_ADDR_RANGE=10.0.0.0/8: NCCL looks for addresses of",
        ),
        (
            '    nccl: {forbidTcpFallback: true}\n    env: {NCCL_IB_DISABLE: "1"}\n',
            "N31: container c: NCCL_NET=IB: NCCL_IB_DISABLE turns this network off",
        ),
        (
            "    nccl: {forbidTcpFallback: true, plugin: gIB}\n    env: {NCCL_NET_PLUGIN: none}\n",
            "N31: container c: NCCL_NET=gIB: is the network of a plugin, and NCCL_NET_PLUGIN=none turns plugins off",
        ),
    ],
)
def test_a_derived_value_is_reported_if_env_of_the_policy_contradicts_it(keys, expected):
    (warning,) = list_warnings(admitting.pod(), admitting.fabric(keys))
    assert warning.startswith(expected)


def test_a_value_from_a_field_or_a_reference_is_not_checked():
    source = {"name": "NCCL_IB_TIMEOUT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    expanded = {"name": "NCCL_IB_RETRY_CNT", "value": "$(MY_COUNT)"}
    assert list_warnings(admitting.pod(gpus(source, expanded)), admitting.fabric()) == ()


def test_an_exception_in_lint_becomes_a_warning():
    policy = admitting.fabric()
    broken = msgspec.structs.replace(inject(admitting.pod(), policy), targets=(7,))
    (warning,) = admission.lint_injected(broken, policy)
    assert warning.line == "LintFailed: railwright could not lint this pod (IndexError); nothing else is affected"


# Rules that report what the handwritten jobs set; railwright itself sets none of these.
BY_HAND = {"N02", "N07", "N09", "N10", "N16", "N18", "N21", "N34"}


@pytest.mark.parametrize("site", sorted(path.parent.name for path in admitting.EXAMPLES.glob("*/policy.yaml")))
def test_the_example_jobs_get_warnings_only_about_their_own_variables(site):
    folder = admitting.EXAMPLES / site
    policy = admitting.read_policy((folder / "policy.yaml").read_text())
    for fabric in policy.document.fabrics:
        tree = admitting.pod(gpus(), label=fabric)
        assert list_warnings(tree, policy, admitting.build_facts(networks=meanings.read_networks(site))) == ()
        for name, expected in (("job", {"N34"}), ("handwritten", BY_HAND)):
            jobs = yaml.safe_load_all((folder / f"{name}.yaml").read_text())
            for tree in (pod for job in jobs for pod in meanings.list_pods(job).values()):
                tree["metadata"].setdefault("labels", {})["railwright.io/fabric"] = fabric
                warnings = list_warnings(tree, policy, admitting.build_facts(networks=None))
                assert {re.search(r"N\d\d", warning)[0] for warning in warnings} <= expected, warnings


def test_lint_skips_a_command_above_8192_characters_but_reads_the_env():
    for length in (8_000, 300_000):
        script = "export NCCL_IB_SL=99\n" + "#" * length
        tree = admitting.pod(gpus(*build_variables(NCCL_IB_RETRY_CNT="15"), command=["sh", "-c", script]))
        warnings = list_warnings(tree, admitting.fabric())
        assert any("NCCL_IB_RETRY_CNT=15" in warning for warning in warnings)
        unread = [warning for warning in warnings if "too long to be linted" in warning]
        assert any("NCCL_IB_SL=99" in warning for warning in warnings) is not bool(unread)
        assert unread == ([] if length < 8192 else ["LintFailed: container c: " + TOO_LONG])


@pytest.mark.parametrize(("mounts", "expected"), [(600, False), (700, True)])
def test_a_pod_with_too_many_entries_is_not_linted_and_gets_a_warning(mounts, expected):
    many = [{"name": "v", "mountPath": f"/{number}"} for number in range(mounts)]
    warnings = list_warnings(admitting.pod(gpus(volumeMounts=many)), admitting.fabric())
    assert any("too large" in warning for warning in warnings) is expected
