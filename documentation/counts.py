"""`python -m documentation.counts` prints how large railwright is: what users must know, and lines to read."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from documentation import check_rows, markdown, rules
from railwright.fabric.policy import schema
from railwright.fabric.reasons import codes
from railwright.serving import metrics

_PRODUCT = ("railwright/", "webhook/", "extender/", "certs/", "documentation/", "manifests/charting/")
_ALERT = re.compile(r"^\s*- alert: (\w+)", re.MULTILINE)
_RULE = re.compile(r"^## [A-Z]\d\d:", re.MULTILINE)
_TARGET = re.compile(r"^[a-z-]+:.*## ", re.MULTILINE)


def count_surface() -> Mapping[str, int]:
    """Return how many keys, codes, rules and the like users meet."""
    definitions = schema.build()["$defs"].values()
    values = yaml.safe_load(_read("manifests/chart/values.schema.json"))
    rights = yaml.safe_load_all(_read("manifests/base/webhook-rbac.yaml"))
    return {
        "policy keys": sum(len(definition.get("properties", ())) for definition in definitions),
        "reason codes": sum(len(group) for group in codes.GROUPS),
        "lint rules": len(_RULE.findall(rules.format_all())),
        "check rows": len(check_rows.list_rows()),
        "metrics": len(metrics.WebhookMetrics().rows + metrics.ExtenderMetrics().rows) - len(metrics.Metrics("").rows),
        "alerts": len(set(_ALERT.findall(_read("manifests/chart/files/alerts.yaml")))),
        "chart values": len(list(_list_values(values, values.get("$defs", {})))),
        "make targets": len(_TARGET.findall(_read("Makefile"))),
        "kinds that the webhook watches": len({kind for rule in _list_rules(rights) for kind in rule["resources"]}),
    }


def count_files() -> Mapping[str, tuple[int, int]]:
    """Return lines and files by what they are: Python of the product, its data, tests, their data, pages."""
    tracked = subprocess.run(["git", "ls-files"], cwd=markdown.ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    counts: dict[str, tuple[int, int]] = {}
    for path in tracked.stdout.splitlines():
        lines = (markdown.ROOT / path).read_bytes().count(b"\n")
        for name in ("all files", _classify(path)):
            total, files = counts.get(name, (0, 0))
            counts[name] = (total + lines, files + 1)
    return counts


def _classify(path: str) -> str:
    is_code = path.endswith(".py")
    if path.startswith("tests/"):
        return "tests in Python" if is_code else "data of tests"
    if path.startswith(_PRODUCT):
        return "Python of the product" if is_code else "package data"
    if path.endswith(".md"):
        return "pages"
    return "manifests" if path.startswith("manifests/") else "other files"


def _read(path: str) -> str:
    return (markdown.ROOT / path).read_text(encoding="utf-8")


def _list_rules(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        yield from (rule for rule in document.get("rules", ()) if "watch" in rule["verbs"])


def _list_values(tree: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of the chart that hold a value, not an object of further keys."""
    if reference := tree.get("$ref"):
        tree = definitions[reference.rsplit("/", 1)[-1]]
    for key, value in tree.get("properties", {}).items():
        below = list(_list_values(value, definitions))
        yield from below or [key]


def main() -> int:
    """Print a line for each count."""
    for name, count in count_surface().items():
        print(f"{count:>8,}  {name}")  # noqa: T201 - a command line prints
    for name, (lines, files) in sorted(count_files().items(), key=lambda item: -item[1][0]):
        print(f"{lines:>8,}  lines in {files:,} files: {name}")  # noqa: T201 - a command line prints
    return 0


if __name__ == "__main__":
    sys.exit(main())
