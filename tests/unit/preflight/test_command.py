"""The command starts in every pod of a fabric: nothing but the standard library and itself is imported for it."""

import subprocess
import sys

import trees
from admitting import ROOT

PROGRAM = """
import sys
from cli.__main__ import main
code = main(["preflight", "--transport", "erdma", "--root", sys.argv[1]])
ours = {"fabric", "cluster", "serving", "webhook", "extender", "certs", "simulator"}
strangers = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
print(code, sorted(strangers), sorted(ours & set(sys.modules)))
"""


def test_it_imports_the_standard_library_and_itself(tmp_path):
    root = trees.lay_out("erdma", tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(root)],  # -S: no site-packages to fall back on
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": "."},
    )
    assert done.stdout.splitlines()[-1] == "0 ['cli', 'preflight'] []"
