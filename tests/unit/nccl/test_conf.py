"""nccl.conf is parsed and written as NCCL's own reader does (NVIDIA/nccl src/misc/param.cc)."""

import conf_reading
import pytest

from railwright.fabric.nccl import conf


def test_nccl_conf_has_values_without_quotes():
    assert conf.format_file([("NCCL_IB_HCA", "=mlx5_0,mlx5_1"), ("NCCL_NET", "AWS Libfabric")]) == (
        "NCCL_IB_HCA==mlx5_0,mlx5_1\nNCCL_NET=AWS Libfabric\n"
    )
    assert conf.format_file([]) == ""


FILES = {
    "A=1\nA=2\n": {"A": "1"},
    "# A=1\n #A=2\nB\n=3\n\nC=": {" #A": "2", "C": ""},
    'A="x"\r\n B = y ': {"A": '"x"\r', " B ": " y "},
    "A==x=y": {"A": "=x=y"},
    "A=" + 2000 * "x": {"A": 1023 * "x"},
}


def test_nccl_conf_is_read_as_by_nccl():
    assert {text: conf_reading.read(text) for text in FILES} == FILES


UNREADABLE = [
    ("A", "x\nNCCL_NET=evil"),
    ("A\n", "x"),
    ("A", "x\0"),
    ("A", "x\r"),
    ("#A", "x"),
    ("A=B", "x"),
    ("", "x"),
    ("A", 1024 * "x"),
    ("A", 512 * "\u00e9"),  # NCCL counts bytes
]


def test_a_variable_that_nccl_would_misread_from_nccl_conf_is_refused():
    for name, value in UNREADABLE:
        assert not conf.fits_line(name, value)
        with pytest.raises(ValueError, match="does not fit into a line"):
            conf.format_file([(name, value)])


OTHERS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_TLS", "OMPI_MCA_btl_tcp_if_include", "NCCL_CONF_FILE", "PATH")


def test_nccl_conf_has_only_variables_of_nccl_and_its_libfabric_plugin():
    assert all(map(conf.can_contain, ("NCCL_IB_HCA", "NCCL_DEBUG", "NCCL_NET", "FI_PROVIDER")))
    assert [name for name in OTHERS if conf.can_contain(name)] == []
