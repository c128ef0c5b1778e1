"""The Helm chart's generated part: as the manifests and the values say today, and strict about keys."""

import importlib.util
import json
import re
import subprocess
import sys

import jsonschema
import pytest
import yaml
from admitting import ROOT

CHART = ROOT / "manifests" / "chart"
SOURCE = ROOT / "manifests" / "charting"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"charting_{name}", SOURCE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_generated_is_up_to_date():
    ran = subprocess.run([sys.executable, SOURCE / "build.py", "--check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stderr}run: python manifests/charting/build.py"


def test_the_defaults_and_the_shipped_values_are_valid():
    for path in sorted(CHART.glob("values*.yaml")):
        jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("webhok", {}),
        ("webhook.replica", 3),
        ("webhook.replicas", 0),
        ("webhook.replicas", "2"),
        ("webhook.failurePolicy", "fail"),
        ("webhook.timeoutSeconds", 31),
        ("webhook.excludedNamespaces", ["a, b"]),
        ("image.digest", "sha256:12"),
        ("certificates.mode", "self-signed"),
        ("admissionPolicy.accelerators", ["x'] || true || ['"]),
        ("admissionPolicy.accelerators", []),
        ("policy.document", {"fabrics": {}}),
        ("policy.create", True),
        ("webhook.minAvailable", 1),
    ],
)
def test_a_key_nobody_reads_and_a_value_nothing_can_be_made_of_are_refused(path, value):
    made = value
    for key in reversed(path.split(".")):
        made = {key: made}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made, SCHEMA)


def test_every_value_is_read_by_a_template_and_no_template_reads_another():
    read = set()
    for path in sorted((CHART / "templates").rglob("*")):
        if path.is_file():
            read |= set(re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text()))
    helped = {f"image.{key}" for key in ("repository", "tag", "digest", "pullPolicy")}  # by `with .Values.image`
    pods = {
        f"{table}.{key}" for table in ("webhook", "extender", "certificates") for key in ("nodeSelector", "tolerations")
    }
    rows = [row for row in loaded("values").rows() if not row.table and row.path[0] != "global"]
    known = {".".join(row.path) for row in rows}
    tables = {".".join(row.path) for row in loaded("values").rows() if row.table}
    assert known <= read | helped | pods, "a value without effect"
    assert read <= known | tables, "a value without a default and a meaning"
    assert all(row.text for row in rows)


def test_an_edit_that_no_longer_fits_its_manifest_ends_the_build():
    templates = loaded("templates")
    template = next(each for each in templates.TEMPLATES if each.name == "webhook.yaml")
    text = (ROOT / "manifests" / template.source).read_text()
    for before, after in (("replicas: 2", "replicas: 5"), ("        resources:\n", "        limits:\n")):
        assert before in text
        with pytest.raises(templates.StaleError, match=r"base/webhook\.yaml"):
            template.render(text.replace(before, after))


def test_the_chart_has_no_hook_but_its_test_and_renders_a_policy_only_where_one_is_given():
    """GitOps tools run hooks at every sync, or never: what a hook writes is put over what an operator edited."""
    for path in sorted((CHART / "templates").rglob("*.yaml")):
        hooks = set(re.findall(r"helm\.sh/hook: *([^\s}]+)", path.read_text()))
        assert hooks == ({"test"} if path.parent.name == "tests" else set()), path
    text = (CHART / "templates" / "policy.yaml").read_text()
    body = re.sub(r"\{\{- /\*.*?\*/\}\}\n", "", text, flags=re.DOTALL)
    assert body.startswith("{{- with .Values.policy.document }}\n")
    assert body.endswith("{{- end }}\n")
    assert body.count("{{- end }}") == 1
    base = yaml.safe_load((ROOT / "manifests" / "base" / "kustomization.yaml").read_text())
    assert "policy.yaml" not in base["resources"]


def test_no_template_writes_what_others_fill():
    """A rendered caBundle or Secret would be put back by each upgrade and rollback (Spiderpool 4243, 4357)."""
    for path in sorted((CHART / "templates").rglob("*.yaml")):
        text = path.read_text()
        assert "lookup" not in text or path.name == "refusals.yaml", path
        assert "genCA" not in text
        for each in text.split("---\n"):
            if re.search(r"^kind: (Secret|Lease)$", each, re.MULTILINE):
                assert not re.search(r"^(data|stringData|spec):", each, re.MULTILINE), path
