"""The command starts in every pod of a fabric: nothing but the standard library and itself is imported for it."""

import subprocess
import sys
import tomllib

import trees
from admitting import ROOT

from railwright.fabric.injection import init_containers

PROGRAM = """
import sys
import tomllib
from railwright.cli.__main__ import main
code = main(["preflight", "--transport", "erdma", "--root", sys.argv[1]])
ours = {"railwright.fabric", "railwright.cluster", "railwright.serving"}
ours |= {"webhook", "extender", "certs"}
strangers = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
print(code, sorted(strangers), sorted(ours & set(sys.modules)))
"""


def test_preflight_imports_only_the_standard_library_and_itself(tmp_path):
    root = trees.lay_out("erdma", tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(root)],  # -S: no site-packages to fall back on
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": "."},
    )
    assert done.stdout.splitlines()[-1] == "0 ['railwright'] []"


def test_the_image_has_every_package_of_the_wheel_and_starts_the_program_by_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = (ROOT / "Containerfile").read_text().splitlines()
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"COPY {package} {package}" in lines
    assert 'ENTRYPOINT ["railwright"]' in lines
    assert "ENV PATH=/railwright/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1" in lines
    assert init_containers.PROGRAM[0] in project["project"]["scripts"]
    assert f"USER {init_containers._USER}:{init_containers._USER}" in lines
