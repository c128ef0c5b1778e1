"""Fuzzes lint: command lines, environment and nccl.conf of a container, and the manifest around them.

Lint never raises, is deterministic, limits its findings, and escapes text for a terminal.
"""

from collections.abc import Iterator

import admitting
import msgspec

from railwright.fabric import views
from railwright.fabric.lint import commands, engine, rank_contexts, rule_types

EXECUTIONS = 1_500  # every rule looks at every input
TOKENS = (
    *b"mpirun mpiexec prterun /usr/bin/bash sh -c -lc -x --mca -mca --gmca --prtemca export env && ; | ( )".split(),
    *b"NCCL_IB_HCA==mlx5_0,mlx5_1 NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=^lo,eth0 NCCL_ALGO=^Ring;allreduce:Tree".split(),
    *b"NCCL_IB_TIMEOUT=99 NCCL_TOPO_FILE=/x NCCL_PROTO=LL128 NCCL_IB_GID_INDEX=3 UCX_TLS=rc TORCH_NCCL_X FI_X".split(),
    *b"OMPI_MCA_btl_tcp_if_include=eth0 btl_tcp_if_include NCCL_IB_ADDR_RANGE=10.0.0.0/8 NCCL_CROSS_NIC=2".split(),
    *b"NCCL_DEBUG_FILE=/l.%h.%p NCCL_NET=IB NCCL_BUFFSIZE=0x10 NCCL_MIN_NCHANNELS=010 NCCL_IB_MERGE_NICS=1".split(),
    *(b"$(X)", b"`x`", b"\\\n", b'"', b"'", b"\x00", b"\n", b"#", b"=", b" ", b"\r", b"\xe2\x80\xa8", b"\x1b[31m"),
)
_GROUNDS = tuple(
    rank_contexts.build_full_use(by.document, by.document.fabrics["f"])
    for by in (admitting.fabric(), admitting.fabric(transport="infiniband"), admitting.fabric(transport="tcp"))
)
_GPU = {"nvidia.com/gpu": "8"}


def seeds() -> Iterator[bytes]:
    """Yield a byte for options and manifest, nccl.conf, the environment, and the words of the command line."""
    for text in (
        b"\x00\x00mpirun\x00-np\x008\x00-x\x00NCCL_DEBUG=INFO\x00-x\x00PATH,NCCL_ALGO\x00--mca\x00btl\x00^openib\x00./a",
        b"NCCL_IB_HCA==mlx5_0\nNCCL_DEBUG=WARN\n\x00\x00bash\x00-c\x00export NCCL_IB_TC=`a`; mpirun -x NCCL_X=$B a",
        b"\x00NCCL_SOCKET_IFNAME=eth0\nNCCL_IB_GID_INDEX=3\x00python\x00t.py",
        b"\x00NCCL_ALGO=Ring\x00sh\x00-ec\x00cd /x &&\\\n NCCL_PROTO='LL,LL128' exec torchrun t.py # $NCCL_DEBUG",
    ):
        for chosen in b"\x00\x01\x06\x0b":
            yield bytes([chosen]) + text


def check(data: bytes) -> None:
    """Assert that nothing raises, and that a higher limit changes nothing."""
    chosen, text = data[0] if data else 0, data[1:].decode("utf-8", "replace")
    file, environment, *words = [*text.split("\x00"), "", ""]
    rank_contexts.read_nccl_conf(file)
    _check_words(words)
    env = [
        {"name": name, "value": value} for name, _, value in (line.partition("=") for line in environment.split("\n"))
    ]
    container = {"name": "c", "command": words, "env": env, "resources": {"limits": _GPU, "requests": _GPU}}
    mount = {"name": "railwright-nccl-conf", "mountPath": "/etc/nccl.conf"}
    metadata = {"annotations": {"railwright.io/nccl.conf": file}}
    pod = msgspec.convert(
        {"metadata": metadata, "spec": {"containers": [{**container, "volumeMounts": [mount]}]}}, views.Pod
    )
    for ground in (rank_contexts.FabricUse(), _GROUNDS[chosen % len(_GROUNDS)]):
        passed = rank_contexts.list_passed_settings(pod, 0) if chosen & 4 else ()
        around = rank_contexts.JobContext(
            ground,
            rank_contexts.parse_pod_networks(pod, "prod"),
            "t",
            passed,
            limited=not chosen & 8,
        )
        _check_findings(rank_contexts.build_context(pod, 0, around))


def _check_words(words: list[str]) -> None:
    result = commands.read_settings(words)
    short = commands.read_settings(words, rank_contexts.MAX_COMMAND)
    assert short in (result, commands.CommandSettings())
    for setting in result.exported + result.passed:
        assert commands.is_linted_variable(setting.name), setting
        assert setting.value is None or not {"$", "`"} & set(setting.value), setting


def _check_findings(ranks: rule_types.RankContext) -> None:
    findings = list(engine.check_ranks(ranks))
    assert findings == list(engine.check_ranks(ranks))
    for finding in findings:
        assert finding.message
        assert len(finding.message) < 2000, finding
        assert finding.message.isprintable(), finding
