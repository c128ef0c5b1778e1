"""LD_LIBRARY_PATH is extended and never replaced."""

import pytest
from admitting import SHAPES, admitted, env, fabric, gpus, planned, pod, skipped, variables
from hypothesis import given
from hypothesis import strategies as st

KEYS = "    libraryPath: {{directories: [/v/lib64, /w], ifUnset: {0}}}\n"
LEAVE, SET = fabric(KEYS.format("leave")), fabric(KEYS.format("set"))
NAME = "LD_LIBRARY_PATH"


def read_path(by, **container):
    return env(admitted(pod(gpus(8, **container)), by)).get(NAME)


def test_directories_follow_those_of_the_container():
    assert read_path(LEAVE, env=variables(LD_LIBRARY_PATH="/a:/b")) == "/a:/b:/v/lib64:/w"
    assert read_path(LEAVE, env=variables(LD_LIBRARY_PATH="/w:/a")) == "/w:/a:/v/lib64"
    assert read_path(LEAVE, env=variables(LD_LIBRARY_PATH="")) == "/v/lib64:/w"
    assert read_path(LEAVE, env=variables(LD_LIBRARY_PATH="/v/lib64/x:/ww")) == "/v/lib64/x:/ww:/v/lib64:/w"


def test_the_value_of_the_image_stays_unless_the_policy_says_otherwise():
    assert read_path(LEAVE) is None
    assert read_path(SET) == "/v/lib64:/w"


@pytest.mark.parametrize("by", [LEAVE, SET])
@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": NAME, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
        {"envFrom": [{"configMapRef": {"name": "c"}}]},
    ],
    ids=["valueFrom", "envFrom"],
)
def test_a_value_that_admission_does_not_see_stays_with_a_warning(by, container):
    tree = pod(gpus(8, **container))
    assert "LibraryPathUnknown" in [warning.code for warning in planned(tree, by).warnings]
    assert (" valueFrom" if "env" in container else " envFrom") in skipped(admitted(tree, by))[f"env.{NAME}"]
    entries = [entry for entry in admitted(tree, by)["spec"]["containers"][0].get("env", []) if entry["name"] == NAME]
    assert entries == container.get("env", [])


@given(st.lists(st.sampled_from(["/v/lib64", "/w", "", "/x"])), st.sampled_from([LEAVE, SET]))
def test_a_second_plan_changes_nothing_and_the_containers_part_stays_first(own, by):
    value = ":".join(own)
    once = admitted(pod(gpus(8, env=variables(LD_LIBRARY_PATH=value, OTHER="x"))), by)
    assert env(once)[NAME].startswith(value)
    assert {"/v/lib64", "/w"} <= {*env(once)[NAME].split(":")}
    assert planned(once, by).changes == ()


def test_an_entry_that_binding_replaces_later_keeps_its_place():
    forced = fabric(KEYS.format("set") + "    forceEnv: [NCCL_IB_HCA]\n", top=SHAPES)
    own = variables(NCCL_IB_HCA="mine", LD_LIBRARY_PATH="/a")
    tree = admitted(pod(gpus(8, env=own)), forced)
    assert env(tree)[NAME] == "/a:/v/lib64:/w"
    assert "NCCL_IB_HCA" not in env(tree)
