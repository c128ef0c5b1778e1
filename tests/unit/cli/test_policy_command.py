"""`railwright policy validate`: its report, JSON and exit codes; and the help of all commands."""

import json
import pathlib
import subprocess
import sys

import pytest

from railwright.cli import __main__ as command_line
from railwright.cli import dispatch, programs

DATA = pathlib.Path(__file__).parents[2] / "data" / "policies"
BAD = "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f: {transport: tpc}\n"


def test_a_valid_policy_is_reported_as_valid_with_the_exit_code_0(capsys):
    assert command_line.main(["policy", "validate", str(DATA / "contract.yaml")]) == 0
    assert "valid (fabrics: roce; sha256:" in capsys.readouterr().out


def test_each_error_of_a_policy_is_printed_with_file_line_and_path(tmp_path, capsys):
    file = tmp_path / "p.yaml"
    file.write_text(BAD + "oops: " + "x" * 300 + "\n")
    assert command_line.main(["policy", "validate", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f'{file}:3: fabrics.f.transport: "tpc" is not one of: ')
    assert lines[1].startswith(f"{file}:4: oops: is not a known key")
    assert lines[2] == "2 errors: this policy would be rejected"


def test_json_has_the_errors_of_an_invalid_file_or_the_digest_and_fabrics_of_a_valid_one(tmp_path, capsys):
    file = tmp_path / "p.yaml"
    file.write_text(BAD)
    assert command_line.main(["policy", "validate", str(file), "-o", "json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)
    (error,) = result["errors"]
    assert (result["file"], result["valid"], result["digest"], result["fabrics"]) == (str(file), False, None, [])
    assert (error["line"], error["path"]) == (3, "fabrics.f.transport")
    assert command_line.main(["policy", "validate", str(DATA / "contract.yaml"), "--output", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["valid"], result["errors"]) == (True, [])
    assert result["digest"].startswith("sha256:")
    assert result["fabrics"], "the fabrics that the text names"


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job", "Job (batch.volcano.sh/v1alpha1)"),
        ("apiVersion: v1\nkind: Endpoints", "Endpoints (v1)"),
    ],
)
def test_an_object_that_is_no_policy_gives_one_error_that_names_its_kind(tmp_path, capsys, head, said):
    file = tmp_path / "job.yaml"
    file.write_text(f"# of a job\n{head}\nmetadata: {{name: a}}\nspec: {{tasks: []}}\n")
    assert command_line.main(["policy", "validate", str(file)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"{file}:2: this is an object of kind {said}, not a policy; give the policy itself"
    assert last == "1 error: this policy would be rejected"


def test_a_config_map_that_contains_a_manifest_instead_of_a_policy_gives_one_error(tmp_path, capsys):
    """As `kubectl create configmap --from-file` stores it, if the file has the manifest and not the policy alone."""
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: railwright-policy}\ndata: {}\n"
    file = tmp_path / "stored.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.yaml": manifest}}))
    assert command_line.main(["policy", "validate", str(file)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert "this is an object of kind ConfigMap (v1), not a policy; give the policy itself" in first
    assert last == "1 error: this policy would be rejected"


def test_policy_validate_prints_lint_warnings_about_the_variables_of_a_valid_policy(tmp_path, capsys):
    file = tmp_path / "p.yaml"
    file.write_text(BAD.replace("{transport: tpc", "{env: {NCCL_DEBUG: LOUD}, transport: tcp"))
    assert command_line.main(["policy", "validate", str(file)]) == 0
    valid, warning = capsys.readouterr().out.splitlines()
    assert "valid" in valid
    assert warning.startswith(f"{file}: warning: N10: fabrics.f.env: NCCL_DEBUG=LOUD: NCCL does not accept this word")
    assert command_line.main(["policy", "validate", str(file), "-o", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert [line.partition(": ")[0] for line in result["warnings"]] == ["N10"]


def test_policy_validate_exits_2_and_says_why_a_file_is_unreadable(tmp_path, capsys):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in ((tmp_path / "no", "No such file"), (binary, "not UTF-8")):
        assert command_line.main(["policy", "validate", str(path)]) == 2
        assert reason in capsys.readouterr().err


def test_every_command_is_in_the_help_and_can_be_loaded(capsys):
    assert list(dispatch.COMMANDS) == sorted(dispatch.COMMANDS)
    assert {"policy", "webhook", "extender"} <= set(dispatch.COMMANDS)
    assert all(map(callable, map(programs.import_main, programs.PROGRAMS)))
    runnable = [leaf for leaf in dispatch.build_parser().get_leaves() if leaf.command.examples]
    assert len([leaf for leaf in runnable if callable(dispatch.import_function(leaf.command.run))]) == 16
    assert command_line.main(["--help"]) == 0
    stdout = capsys.readouterr().out
    assert all(any(line.split()[:1] == [name] for line in stdout.splitlines()) for name in dispatch.COMMANDS)


def find_output(leaf):
    return [argument for argument in leaf._actions if "-o" in argument.option_strings]


def test_only_commands_that_print_a_result_have_an_output_format_and_text_is_the_default():
    leaves = {leaf.prog: leaf for leaf in dispatch.build_parser().get_leaves() if leaf.command.examples}
    without = {name for name, leaf in leaves.items() if not find_output(leaf)}
    assert without == {
        "railwright completion",
        "railwright dashboard",
        "railwright demo",
        "railwright disable",
        "railwright enable",
        "railwright policy init",
        "railwright policy scheduler-config",
        "railwright policy schema",
    }
    for name in leaves.keys() - without:
        (option,) = find_output(leaves[name])
        assert option.default == "text"
        assert option.choices[0] == "text"
        assert option.choices[-2:] == ("json", "yaml")


def run(*arguments: str, program: str = "railwright", **options) -> subprocess.CompletedProcess[str]:
    code = "import sys; from railwright.cli.__main__ import main; sys.argv[0] = sys.argv.pop(1); sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, program, *arguments],
        text=True, capture_output=True, check=False, timeout=60, cwd=DATA.parents[2], **options,
    )  # fmt: skip


def test_the_usage_of_the_plugin_begins_with_kubectl():
    assert run("policy", program="/x/kubectl-railwright").stderr.startswith("usage: kubectl railwright policy")
