"""A score term is one file and one row: added to a copy of the tree, it changes scores and explanations."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
TERM = ROOT / "tests" / "data" / "score_term"
TERMS = "railwright/fabric/placement/nodes/terms"


def test_one_file_and_one_row_add_a_score_term(tmp_path):
    no_caches = shutil.ignore_patterns("__pycache__")
    for folder in ("railwright", "tests/support"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=no_caches)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(TERM / "power.py", tmp_path / TERMS)
    shutil.copy(TERM / "check_power.py", tmp_path / "test_power.py")
    registry = tmp_path / TERMS / "registry.py"
    text = registry.read_text()
    changed = text.replace("numa, packing, rails", "numa, packing, power, rails").replace(
        "packing.TERM)", "packing.TERM, power.TERM)"
    )
    changed_lines = [line for line, old in zip(changed.splitlines(), text.splitlines(), strict=True) if line != old]
    assert len(changed_lines) == 2, "the import and the row"
    registry.write_text(changed)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_power.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
