"""The command starts in every pod of a fabric, so it imports only the standard library and its own package."""

import subprocess
import sys
import tomllib

import sysfs_trees
from admitting import ROOT
from preflights import build_rail_options

from railwright.fabric.injection import init_containers

PROGRAM = """
import sys
from railwright.cli.__main__ import main
code = main(["preflight", *sys.argv[1:]])
ours = {"railwright.fabric", "railwright.cluster", "railwright.serving"}
ours |= {"webhook", "extender", "certs"}
strangers = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
import pathlib
import time
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
print(code, sorted(strangers), sorted(ours & set(sys.modules)), time.process_time(), status["VmHWM"].split()[0])
"""


def test_preflight_imports_only_the_standard_library_and_itself_and_is_small(tmp_path):
    """Eight NICs with GID tables of 256 entries, as mlx5 has. -S: no site-packages to fall back on."""
    node = sysfs_trees.build_roce(tmp_path, rails=8)
    for device in range(8):
        for index in range(9, 256):
            node.write_gid(f"/sys/class/infiniband/mlx5_{device}/ports/1", index, "", "", "")
    options = ["--transport=roce", f"--root={tmp_path}", f"--write={tmp_path}", *build_rail_options(8)]
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, *options],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": "."},
    )
    *result, seconds, kibibytes = done.stdout.splitlines()[-1].rsplit(" ", 2)
    assert result == ["0 ['railwright'] []"]
    assert float(seconds) < 0.3
    assert int(kibibytes) < 64 * 1024


def test_the_image_has_every_package_of_the_wheel_and_starts_the_program_by_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = (ROOT / "Containerfile").read_text().splitlines()
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        assert f"COPY {package} {package}" in lines
    assert 'ENTRYPOINT ["railwright"]' in lines
    assert "ENV PATH=/railwright/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1" in lines
    assert init_containers.PROGRAM[0] in project["project"]["scripts"]
    assert f"USER {init_containers._USER}:{init_containers._USER}" in lines
