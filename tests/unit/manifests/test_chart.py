"""The generated files of the Helm chart: they are up to date, and the schema rejects unknown keys."""

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
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)


def load(name):
    """Load a module of manifests/charting, which imports its neighbours by name."""
    if str(SOURCE) not in sys.path:
        sys.path.append(str(SOURCE))
    spec = importlib.util.spec_from_file_location(f"charting_{name}", SOURCE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_values(table, above=""):
    """Yield the path of each value with its schema; a table comes before its values."""
    for key, schema in table["properties"].items():
        yield f"{above}{key}", schema
        yield from list_values(schema, f"{above}{key}.") if "properties" in schema else ()


def test_generated_files_of_the_chart_are_up_to_date():
    build = load("build")
    assert build.list_outdated_files(build.build_files()) == [], "run: python manifests/charting/build.py"


@pytest.mark.parametrize("value", ["policy.document", "image.tag"])
def test_a_chart_value_of_null_counts_as_unset(value):
    """Argo CD, and a values file with an empty value, set null."""
    find = [sys.executable, "-c", "import render; print(render.find_helm() or '', end='')"]
    helm = subprocess.run(find, cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    if not helm:
        pytest.skip("no Helm: run .venv/bin/python tests/integration/build.py")
    render = [helm, "template", "railwright", CHART]
    ran = subprocess.run([*render, f"--set={value}=null"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == subprocess.run(render, capture_output=True, text=True, check=True).stdout


def test_the_shipped_values_files_match_the_values_schema():
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
        ("webhook.opsPort", 0),
        ("webhook.nodeSelector", {}),
        ("webhook.excludedNamespaces", ["a, b"]),
        ("image.tag", "sha256:12"),
        ("certificates.mode", "self-signed"),
        ("admissionPolicy.accelerators", ["x'] || true || ['"]),
        ("admissionPolicy.accelerators", []),
        ("policy.document", {"fabrics": {}}),
        ("policy.create", True),
        ("webhook.minAvailable", 1),
    ],
)
def test_the_values_schema_rejects_unknown_keys_and_invalid_values(path, value):
    made = value
    for key in reversed(path.split(".")):
        made = {key: made}
    assert not VALIDATOR.is_valid(made)


PODS = {"webhook", "extender"}  # tables that helpers of _pods.tpl get as `.values`
WITHIN = {  # tables that a file reads by `with .Values.TABLE`
    "image": "_helpers.tpl",
}


def test_templates_read_all_values_of_the_chart_and_no_others():
    texts = {path.name: path.read_text() for path in sorted((CHART / "templates").rglob("*")) if path.is_file()}
    read = {key for text in texts.values() for key in re.findall(r"\.Values\.([A-Za-z.]+)", text)}
    for table, name in WITHIN.items():
        assert f"with .Values.{table} " in texts[name]
        read |= {f"{table}.{key}" for key in re.findall(r"[( ]\.([a-z]\w*)", texts[name])}
    helped = set(re.findall(r"\.values\.([A-Za-z.]+)", texts["_pods.tpl"]))
    described = {path: schema for path, schema in list_values(SCHEMA) if path != "global"}
    tables = {path for path, schema in described.items() if "properties" in schema}
    known = described.keys() - tables
    pods = {key for key in known if key.partition(".")[0] in PODS}
    assert known <= read | {key for key in pods if key.partition(".")[2] in helped}, "a value without effect"
    assert helped <= {key.partition(".")[2] for key in pods}, "a value without a default and a meaning"
    unknown = read - known - tables
    assert not {key for key in unknown if key.rpartition(".")[0] not in WITHIN}, "a value without a default"
    assert all(schema["description"] for schema in described.values())


def test_scripts_and_pages_set_only_values_of_the_chart():
    known = {path for path, _ in list_values(SCHEMA)}
    files = (ROOT / "hack" / "quickstart" / "quickstart.sh", ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    named = {
        (path.name, value)
        for path in files
        for line in re.findall(r"--set(?:-string|-file)?[ =]\"?(\S+)", path.read_text())
        for value in re.findall(r"(?:^|,)([a-z]\w*(?:\.\w+)+)=", line)
    }
    assert ("quickstart.sh", "image.tag") in named
    assert not {(page, value) for page, value in named if value not in known}


def test_the_chart_writes_a_policy_only_from_policy_document_and_without_hooks():
    """GitOps tools run hooks at every sync, or never: a hook would overwrite an operator's edit."""
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


def test_templates_leave_certificates_and_secret_data_to_controllers():
    """A rendered caBundle or Secret would be put back by each upgrade and rollback (Spiderpool 4243, 4357)."""
    for path in sorted((CHART / "templates").rglob("*.yaml")):
        text = path.read_text()
        assert "lookup" not in text or path.name == "refusals.yaml", path
        assert "genCA" not in text
        for part in text.split("---\n"):
            if re.search(r"^kind: Secret$", part, re.MULTILINE):
                assert not re.search(r"^(data|stringData|spec):", part, re.MULTILINE), path
