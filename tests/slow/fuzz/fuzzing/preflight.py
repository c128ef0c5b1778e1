"""Fuzzes preflight in a container: files of /sys and /proc, an image's nccl.conf, variables and options.

There is always a report, and it fits one line. A sandboxed runtime writes its own files in /sys and /proc.
"""

import argparse
import fnmatch
import json
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.preflight import __main__ as program
from railwright.preflight import checks, expected, files, resolution
from railwright.preflight import host as hosts

EXECUTIONS = 4_000
TOKENS = (
    *b"/sys/class/net/net1/mtu /sys/class/net/net\xc2\xb2/mtu /sys/class/infiniband/mlx5_0/ports/2/state 4:".split(),
    *b"NCCL_IB_HCA =mlx5_0:1 ^mlx5 =^ mlx5_0,mlx5_1 :-1 NCCL_IB_GID_INDEX 3 -1 roce erdma efa infiniband".split(),
    *b"rail0,device=mlx5_0,interface=net1 ,device= ,interface= files environment rails transport net1 local".split(),
    *(b"0A00000A", b"FFFFFFFF", b"|-- 10.0.0.1", b"/32 host LOCAL"),
    *(b"\xc2\xb2", b"\xd9\xa3", b"9" * 5000, b"0x", b"\n"),
)
_SYS, _PORT = "/sys/class/infiniband/mlx5_0", "/sys/class/infiniband/mlx5_0/ports/1"
_FILES = {
    f"{_PORT}/state": "4: ACTIVE",
    f"{_PORT}/link_layer": "Ethernet",
    f"{_PORT}/rate": "400 Gb/sec (4X NDR)",
    f"{_PORT}/gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0007",
    f"{_PORT}/gid_attrs/types/3": "RoCE v2",
    f"{_PORT}/gid_attrs/ndevs/3": "net1",
    f"{_SYS}/device/infiniband_verbs/uverbs0/dev": "231:192",
    "/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0",
    "/dev/infiniband/uverbs0": "",
    "/sys/class/net/net1/mtu": "9000",
    "/proc/net/fib_trie": "Main:\n  +-- 10.0.0.0/24 2 0 2\n     |-- 10.0.0.7\n        /32 host LOCAL\n",
    "/proc/net/route": "Iface Destination\nnet1 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n",
    "/proc/net/if_inet6": "fd000000000000000000000000000007 05 40 00 80 net1\n",
    "/proc/self/limits": "Max locked memory         unlimited            unlimited            bytes\n",
    "/proc/self/status": "Name: x\nCapBnd:\t0000000000004000\n",
    "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/rail0/dra.net-metadata.json": json.dumps(
        {"requests": [{"name": "rail0", "devices": [{"attributes": {"dra.net/rdmaDevice": {"string": "mlx5_0"}}}]}]}
    ),
    f"{_SYS}/device": "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0",
}

_ODD = {  # no kernel writes so
    "/sys/class/net/net\u00b2/mtu": "\u00b2",
    f"{_SYS}/ports/x/state": "4: ACTIVE",
    f"{_PORT}/gids/y": "z",
    "/proc/net/fib_trie": "|-- here\n/32 host LOCAL\n",
    "/proc/net/route": "\nnet1 Z 00000000 0 0 0 0 Z\n",
    "/proc/net/if_inet6": "z net1\n\n",
    "/proc/self/limits": "Max locked memory\n",
    "/proc/self/status": "CapBnd: z\n",
}


class _Files(hosts.Host):
    """A file tree in memory; folders are the parents of files."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        self._files = files

    def read_text(self, path: str) -> str | None:
        text = self._files.get(path)
        return None if text is None else text.encode("utf-8", "replace").decode("utf-8", "replace").strip()

    def read_lines(self, path: str) -> Iterator[str]:
        yield from (self.read_text(path) or "").splitlines()

    def list_names(self, path: str) -> list[str]:
        below = [file.removeprefix(f"{path}/") for file in self._files if file.startswith(f"{path}/")]
        return sorted({name.partition("/")[0] for name in below}, key=hosts.build_sort_key)

    def find_paths(self, pattern: str) -> list[str]:
        return [path for path in self._files if fnmatch.fnmatchcase(path, pattern)]

    def exists(self, path: str) -> bool:
        return any(file == path or file.startswith(f"{path}/") for file in self._files)

    def find_real_path(self, path: str) -> str:
        target = self._files.get(path, "")
        return target if target.startswith("/") else ""

    def find_open_error(self, path: str) -> str:
        return "" if self.exists(path) else "No such file or directory"


def seeds() -> Iterator[bytes]:
    """Yield a healthy rail, with each transport and way to name it."""
    for transport, rails, environment in (
        ("roce", ["rail0,device=mlx5_0,interface=net1"], {"NCCL_IB_GID_INDEX": "3"}),
        ("roce", ["rail0,interface=net1"], {"NCCL_IB_HCA": "=mlx5_0:1"}),
        ("infiniband", [], {"NCCL_IB_HCA": "^mlx4"}),
        ("efa", ["rail0"], {}),
    ):
        tree = {"files": _FILES, "environment": environment, "rails": rails, "transport": transport}
        yield json.dumps(tree).encode()
    yield json.dumps(
        {"files": {**_FILES, **_ODD}, "rails": ["rail0,interface=net\u00b2"], "transport": "roce"}
    ).encode()


def check(data: bytes) -> None:
    """Assert that only a rail's error is raised, the files have the form for their readers, and the line fits."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return
    tree_files, environment = _texts(tree, "files"), _texts(tree, "environment")
    host = _Files({path: text for path, text in tree_files.items() if path.startswith("/") and _fits(path)})
    transport = tree.get("transport") if isinstance(tree, dict) else None
    index = environment.get(expected.GID_INDEX)
    expectation = expected.Expectations(
        transport=transport if isinstance(transport, str) and transport in expected.RULES else "roce",
        rails=list(_rails(tree)),
        settings=[],
        vendor_variables=[],
        mtu=4200,
        gid_index=hosts.parse_number(index),
        environment=environment,
    )
    view = resolution.read_container(host, expectation)
    rails = resolution.resolve_rails(view)
    problems = list(checks.find_problems(view, rails))
    assert problems or rails
    variables = files.derive_variables(view, rails)
    texts, unfit = files.format_files(expectation, variables)
    for name, line in ((name, line) for name, text in texts.items() for line in text.splitlines()):
        assert line.isprintable()
        assert name != files.RAILS_ENV or (line.count("'") == 2 and line.endswith("'") and "=''" not in line)
        assert name != files.UCX_CONF or len(line.encode()) < 200
    line = checks.format_result(view, rails, [*problems, *unfit])
    assert line.isprintable()
    assert len(line) <= checks.MAX
    files.format_json(files.build_rails_json(view, rails, variables, problems))


def _fits(path: str) -> bool:
    """Return True for a path that a file system allows (NAME_MAX)."""
    return all(len(step.encode("utf-8", "replace")) < 256 for step in path.split("/"))


def _texts(tree: Any, key: str) -> dict[str, str]:
    mapping = tree.get(key) if isinstance(tree, dict) else None
    return {k: v for k, v in mapping.items() if isinstance(v, str)} if isinstance(mapping, dict) else {}


def _rails(tree: Any) -> Iterator[expected.Rail]:
    rails = tree.get("rails") if isinstance(tree, dict) else None
    for written in rails[:16] if isinstance(rails, list) else ():
        if isinstance(written, str):
            try:
                yield program._parse_rail(written)
            except argparse.ArgumentTypeError as error:
                assert str(error)
