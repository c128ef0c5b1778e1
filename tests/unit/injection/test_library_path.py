"""LD_LIBRARY_PATH is extended and never replaced."""

import pytest
from admitting import admit_pod, build_variables, fabric, gpus, plan_pod, pod, read_env, read_skipped

BY = fabric("    libraryPath: [/v/lib64, /w]\n")
NAME = "LD_LIBRARY_PATH"


def read_path(**container):
    return read_env(admit_pod(pod(gpus(8, **container)), BY)).get(NAME)


def test_library_directories_are_appended_to_those_of_the_container():
    assert read_path() == "/v/lib64:/w"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="/a:/b")) == "/a:/b:/v/lib64:/w"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="/w:/a")) == "/w:/a:/v/lib64"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="")) == "/v/lib64:/w"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="/v/lib64/x:/ww")) == "/v/lib64/x:/ww:/v/lib64:/w"


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": NAME, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
        {"envFrom": [{"configMapRef": {"name": "c"}}]},
    ],
    ids=["valueFrom", "envFrom"],
)
def test_a_library_path_from_elsewhere_is_kept_with_a_warning(container):
    tree = pod(gpus(8, **container))
    assert "VariablesLeftToEnvFrom" in [warning.code for warning in plan_pod(tree, BY).warnings]
    assert (" valueFrom" if "env" in container else " envFrom") in read_skipped(admit_pod(tree, BY))[f"env.{NAME}"]
    entries = [entry for entry in admit_pod(tree, BY)["spec"]["containers"][0].get("env", []) if entry["name"] == NAME]
    assert entries == container.get("env", [])
