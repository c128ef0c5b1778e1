"""Compares the parser of NCCL_IB_HCA with recorded results of NCCL's own code."""

import json

import pytest
from admitting import ROOT

from railwright.preflight import expected

VECTORS = json.loads((ROOT / "tests/data/nccl-hca.json").read_text())


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["value"])
def test_an_hca_list_selects_the_devices_that_nccl_selects(case):
    ports = [device.rpartition(":") for device in VECTORS["devices"]]
    chosen = [f"{name}:{port}" for name, _, port in ports if expected.selects(case["value"], name, int(port))]
    assert chosen == case["selected"]


@pytest.mark.parametrize(
    ("value", "names"), [("=a,b", ("a", "b")), ("=a:1,a:2,", ("a",)), ("a,b", ()), ("^=a", ()), ("=^a", ()), ("", ())]
)
def test_only_an_exact_list_names_devices(value, names):
    assert expected.parse_exact_list(value) == names
