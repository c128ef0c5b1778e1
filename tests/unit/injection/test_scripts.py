"""Scripts of a fabric."""

import pytest
from admitting import admit_pod, build_facts, decode_pod, fabric, gpus, list_messages, plan_pod, pod, read_record
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import admission

BY = fabric("    sourceScript: /v/env.sh\n")
SCRIPT = ["/bin/bash", "-c", '. /v/env.sh && exec "$0" "$@"']


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.none() | st.lists(st.text(max_size=8), max_size=2))
def test_a_sourced_script_leaves_command_and_arguments_unchanged(command, args):
    more = {} if args is None else {"args": args}
    once = admit_pod(pod(gpus(8, command=command, **more)), BY)
    container = once["spec"]["containers"][0]
    assert container["command"] == [*SCRIPT, *command]
    assert container.get("args") == args


@pytest.mark.parametrize("by", [fabric(), fabric("    sourceScript: /v/env.sh\n")], ids=["plain", "sourced"])
def test_lint_reads_the_command_that_follows_a_sourced_script(by):
    tree = pod(gpus(8, command=["bash", "-c", "export NCCL_IB_DISABLE=1; train"]))
    assert "N31" in [warning.code for warning in admission.plan(decode_pod(tree), by, build_facts()).warnings]


def test_a_container_without_a_command_is_left_unchanged_with_a_warning():
    tree = pod(gpus(8, args=["--x"]))
    assert "has no command, so /v/env.sh is not sourced" in list_messages(plan_pod(tree, BY))[0]
    after = admit_pod(tree, BY)
    assert "command" not in after["spec"]["containers"][0]
    assert "sourceScript" in read_record(after)["skipped"]


def test_the_shell_runs_the_program_with_its_original_arguments(tmp_path):
    import subprocess

    script = tmp_path / "env.sh"
    script.write_text("export A=set\n")
    words = ["/bin/sh", "-c", 'printf "%s|" "$A" "$@"', "sh", "a b", "$HOME", "'"]
    command = [*SCRIPT[:2], SCRIPT[2].replace("/v/env.sh", str(script)), *words]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "set|a b|$HOME|'|"
    script.unlink()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
