"""Writes the generated part of the Helm chart: `python manifests/charting/build.py`; with `--check` it only tells what
is out of date (exit code 1).

Generated: values.yaml, values.schema.json, README.md, files/, Chart.yaml's versions, the tables of docs/chart.md, and
the templates that `templates.py` makes of manifests/. Written by hand in the chart: the other templates.
"""

import argparse
import json
import pathlib
import re
import sys

import templates
import values
import yaml

from railwright.fabric import version

MANIFESTS = pathlib.Path(__file__).parents[1]
CHART = MANIFESTS / "chart"
PAGE = MANIFESTS.parent / "docs" / "chart.md"
BEGIN, END = "<!-- values: written by manifests/charting/build.py -->\n", "<!-- end of values -->\n"
SOURCE = "made of manifests/{} by manifests/charting/build.py: edit that, and run this"


def built() -> dict[pathlib.Path, str]:
    """Every generated file and its text."""
    made = {
        CHART / "values.yaml": values_file(),
        CHART / "values.schema.json": json.dumps(values.schema(), indent=2) + "\n",
        CHART / "Chart.yaml": chart_file(),
        CHART / "README.md": f"{README}\n{BEGIN}{table()}{END}",
        PAGE: page(PAGE.read_text() if PAGE.exists() else BEGIN + END),
    }
    for name, source in templates.FILES.items():
        made[CHART / name] = (MANIFESTS / source).read_text()
    for each in templates.TEMPLATES:
        text = each.render((MANIFESTS / each.source).read_text())
        made[CHART / "templates" / each.name] = f"{{{{- /* {SOURCE.format(each.source)} */}}}}\n{text}"
    made[CHART / "files" / "policy.yaml"] = yaml.safe_load(made[CHART / "files" / "policy.yaml"])["data"]["policy.yaml"]
    return made


README = """# railwright, by Helm

    helm install railwright manifests/chart --namespace railwright-system --create-namespace

One installation a cluster, always in the namespace `railwright-system`. Upgrading, uninstalling and what Helm must not
be told to do: [docs/chart.md](../../docs/chart.md).
"""


def chart_file() -> str:
    """Chart.yaml, with the version of the package."""
    return f"""# written by manifests/charting/build.py; the version is that of railwright/fabric/version.py
apiVersion: v2
name: railwright
description: Gives distributed training pods the right RDMA network, and gangs the right nodes
type: application
version: {version.VERSION}
appVersion: "{version.VERSION}"
kubeVersion: ">= 1.30.0-0"  # matchConditions and ValidatingAdmissionPolicy
home: https://railwright.io/docs
"""


def values_file() -> str:
    """values.yaml: every key with its default, its meaning beside it."""
    lines = ["# written by manifests/charting/build.py of values.py there: each key with its default and its meaning"]
    for row in values.rows():
        indent = "  " * (len(row.path) - 1)
        if row.table:
            lines += ["", f"# {row.text}", f"{row.path[-1]}:"]
        else:
            written = json.dumps(row.default).replace('"', "") if flat(row.default) else json.dumps(row.default)
            lines.append(f"{indent}{row.path[-1]}: {written}  # {row.text}")
    return "\n".join(lines) + "\n"


def flat(value: object) -> bool:
    """True for what YAML reads alike without quotes."""
    return isinstance(value, dict | list | str) and bool(value)


def table() -> str:
    """The values as a table of Markdown."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for row in values.rows():
        if not row.table:
            default = json.dumps(row.default).replace('"', "") if row.default not in ("", None) else '""'
            lines.append(f"| `{'.'.join(row.path)}` | `{default}` | {row.text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table of today between its marks."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}{table()}{END}", text, flags=re.DOTALL)


def stale() -> list[pathlib.Path]:
    """Generated files that are not as they would be written now."""
    return [path for path, text in built().items() if not path.exists() or path.read_text() != text]


def main() -> int:
    """0 written or up to date, 1 out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if parser.parse_args().check:
        for path in stale():
            sys.stderr.write(f"out of date: {path.relative_to(MANIFESTS.parent)}\n")
        return 1 if stale() else 0
    for path, text in built().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
