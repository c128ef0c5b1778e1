"""A framework is one file and one row: a copy of the repository with both supports it everywhere."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
FRAMEWORK = ROOT / "tests" / "data" / "framework"
REGISTRY = "railwright/fabric/workloads/registry.py"


def test_one_file_and_one_row_add_a_framework(tmp_path):
    no_caches = shutil.ignore_patterns("__pycache__")
    for folder in ("railwright", "webhook", "extender", "tests/support"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=no_caches)
    shutil.copy(FRAMEWORK / "acme.py", tmp_path / REGISTRY.replace("registry", "acme"))
    shutil.copy(FRAMEWORK / "check_acme.py", tmp_path / "test_acme.py")
    registry = (tmp_path / REGISTRY).read_text()
    changed = registry.replace("    frameworks,\n", "    acme,\n    frameworks,\n", 1).replace(
        "    ray.FRAMEWORK,\n", "    acme.FRAMEWORK,\n    ray.FRAMEWORK,\n", 1
    )
    assert len(changed.splitlines()) == len(registry.splitlines()) + 2
    (tmp_path / REGISTRY).write_text(changed)
    options = ["-q", "-p", "no:cacheprovider", "-o", "pythonpath=. tests/support"]
    command = [sys.executable, "-m", "pytest", *options, "test_acme.py"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
