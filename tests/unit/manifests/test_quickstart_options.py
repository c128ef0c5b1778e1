"""Wrong options of hack/quickstart/quickstart.sh end it before it touches a cluster, with one sentence."""

import os
import subprocess

import pytest
from admitting import ROOT

SCRIPT = ROOT / "hack" / "quickstart" / "quickstart.sh"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--image"], "--image needs a value; --help lists the options"),
        (["--kind", ""], "--kind needs a value; --help lists the options"),
        (["--nodes"], "--nodes needs a value; --help lists the options"),
        (["--check"], "--check needs a value; --help lists the options"),
        (["--nodes", "a", "--image", "railwright"], "--image railwright has no tag: write NAME:TAG or"),
        (["--nodes", "a", "--image", "localhost:5000/railwright"], "--image localhost:5000/railwright has no tag"),
        (["--imgae", "a"], "unknown option --imgae"),
    ],
    ids=" ".join,
)
def test_quickstart_reports_a_wrong_option_with_the_fix(options, said):
    programs = {"KUBECTL": "true", "HELM": "true"}  # they do nothing, successfully
    done = subprocess.run(
        ["bash", str(SCRIPT), *options],
        env={**os.environ, **programs},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"quickstart: {said}")
