"""The page on schedulers agrees with the shipped configurations, which avoid known pitfalls of both schedulers."""

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "manifests" / "examples" / "schedulers"
PAGE = (ROOT / "docs" / "schedulers.md").read_text()
KUBE = yaml.safe_load((EXAMPLES / "kube-scheduler.yaml").read_text())
VOLCANO = yaml.safe_load((EXAMPLES / "volcano-scheduler.yaml").read_text())
(ENTRY,) = KUBE["extenders"]
PLUGINS = [plugin for tier in VOLCANO["tiers"] for plugin in tier["plugins"]]
ARGUMENTS = next(plugin["arguments"] for plugin in PLUGINS if plugin["name"] == "extender")
ALLOCATE = next(
    configuration["arguments"] for configuration in VOLCANO["configurations"] if configuration["name"] == "allocate"
)
SHIPPED = {**KUBE, **ENTRY, **ARGUMENTS, **ALLOCATE}
ROWS = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_the_page_on_schedulers_states_the_values_of_the_shipped_configurations():
    assert ROWS
    for key, value in ROWS:
        shipped = SHIPPED[key]
        assert (type(shipped), shipped) == (type(json.loads(value)), json.loads(value)), key


def test_schedulers_verify_the_certificate_of_the_extender():
    assert ENTRY["urlPrefix"].startswith("https://") == ENTRY["enableHTTPS"]
    assert ENTRY["tlsConfig"].get("caFile")
    assert "insecure" not in ENTRY["tlsConfig"]


def test_volcanos_configuration_has_the_types_and_the_plugin_order_that_volcano_needs():
    assert isinstance(ARGUMENTS["extender.managedResources"], list)
    assert isinstance(ARGUMENTS["extender.ignorable"], bool)
    order = [plugin["name"] for plugin in PLUGINS]
    assert order.index("predicates") < order.index("extender")
    assert "binpack" in order
    assert not [key for key in ARGUMENTS if "jobReady" in key], "Volcano reads its failure as ready"


def test_kube_scheduler_and_volcano_examples_manage_the_same_resources():
    assert [resource["name"] for resource in ENTRY["managedResources"]] == ARGUMENTS["extender.managedResources"]
