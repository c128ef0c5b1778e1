"""Writes the three Grafana dashboards beside this file: `python manifests/components/prometheus/dashboards/build.py`.

Each has a file with its panels. An argument names another folder. A test fails if the JSON is out of date.
"""

import json
import pathlib
import sys

import admission
import fabric
import scheduling

FOLDER = pathlib.Path(__file__).parent
DASHBOARDS = {"admission": admission.DASHBOARD, "scheduling": scheduling.DASHBOARD, "fabric": fabric.DASHBOARD}


def write(folder: pathlib.Path) -> None:
    """Write the file of each dashboard."""
    for name, dashboard in DASHBOARDS.items():
        (folder / f"{name}.json").write_text(json.dumps(dashboard, indent=2) + "\n")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
