"""Parsers compared with recorded results of NCCL's libraries and of its extracted sources."""

import pathlib

import yaml
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.nccl import parsing

VECTORS = yaml.safe_load((pathlib.Path(__file__).parents[2] / "data" / "nccl-vectors.yaml").read_text())
DEVICES = VECTORS["hca_filter"]["devices"]


def read(recorded: int | str) -> int | None:
    return recorded if isinstance(recorded, int) else None  # "default", or "unset" for an empty text


def select_devices(value: str, devices: list[str]) -> list[str]:
    names = parsing.parse_list(value)
    return [device for device in devices if names.selects(device)]


def test_a_device_list_selects_what_nccl_selects():
    cases = VECTORS["hca_filter"]["cases"]
    assert len(cases) == 20
    for case in cases:
        assert select_devices(case["value"], DEVICES) == case["selected"], case["value"]


def test_a_number_is_read_as_nccl_reads_it():
    assert len(VECTORS["integers"]) == 9
    for row in VECTORS["integers"]:
        assert parsing.parse_number(row["text"]) == read(row["2.32.3"]), row


NUMBERS = {
    "08": 0, "-010": -8, "0x": 0, "0XfF": 255, "+5": 5, " -3x": -3, "-": None, "\u0663": None,
    "9223372036854775807": 2**63 - 1, "9223372036854775808": None, "-9223372036854775808": -(2**63),
    "0x" + "0" * 5000 + "1": 1, "9" * 5000: None, "0" * 5000: 0,
}  # fmt: skip


def test_unusual_numbers_are_read_as_by_strtoll():
    assert {text: parsing.parse_number(text) for text in NUMBERS} == NUMBERS


@given(st.text(alphabet="^=,:ml x5_019", max_size=30))
def test_a_device_list_of_any_text_selects_only_existing_devices(value):
    assert set(select_devices(value, DEVICES)) <= set(DEVICES)
    if not value.startswith("^"):
        left = parsing.parse_list("^" + value)
        assert [d for d in DEVICES if not left.selects(d)] == select_devices(value, DEVICES)


def test_at_most_32_devices_or_16_interfaces_of_a_list_are_read():
    many = ",".join(f"=d{n}".lstrip("=") for n in range(40))
    assert len(parsing.parse_list("=" + many).entries) == 32
    assert select_devices("=" + many, ["d31", "d32"]) == ["d31"]
    assert parsing.select_interfaces("=" + many, ["d15", "d16"]) == ("d15",)


INTERFACES = {
    "=eth0": ("eth0",), "eth": ("eth0",), "^lo": ("eth0", "net1", "net2"), "x": ("eth0", "net1", "net2"),
    None: ("eth0", "net1", "net2"), "ens3": (), "=net": (), "net": ("net1", "net2"),
}  # fmt: skip


def test_an_interface_list_selects_what_nccl_selects():
    taken = {value: tuple(parsing.select_interfaces(value, ["eth0", "net1", "lo", "net2"])) for value in INTERFACES}
    assert taken == INTERFACES
