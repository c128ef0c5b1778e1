"""Programs of Mooncake's transfer engine: one pod writes into the memory of another pod."""

import re

from plane import waiting

from realnode import ranks, traffic

SIZE, TIMES = 1 << 20, 8  # bytes of a write, writes
_LOG = "/tmp/mooncake"
_ENGINE = f"""
import ctypes, hashlib, random, sys, time
from mooncake.engine import TransferEngine

address, protocol = sys.argv[1:3]
size, times = {SIZE}, {TIMES}
engine = TransferEngine()
assert engine.initialize(address, "P2PHANDSHAKE", protocol, "") == 0
memory = ctypes.create_string_buffer(size * times)  # a buffer of the engine's own would be 2 GiB, all of it pinned
place = ctypes.addressof(memory)
assert engine.register_memory(place, size * times) == 0
"""
_RECEIVE = f"""{_ENGINE}
print("LISTENS", engine.get_rpc_port(), place, flush=True)
while True:
    print("DIGEST", hashlib.sha256(memory.raw).hexdigest(), flush=True)
    time.sleep(1)
"""
_SEND = f"""{_ENGINE}
target, remote = sys.argv[3], int(sys.argv[4])
memory[:] = random.randbytes(size * times)
for number in range(times):
    assert engine.transfer_sync_write(target, place + number * size, remote + number * size, size) == 0
print("SENT", hashlib.sha256(memory.raw).hexdigest(), flush=True)
"""


async def transfer(client: ranks.Rank, server: ranks.Rank) -> None:
    """Write from one pod into the other's memory with Mooncake and the pods' environment; check the content there."""
    addresses = {rank: await traffic.get_pod_address(rank) for rank in (client, server)}
    start = f'python3 -c "$0" "$@" > {_LOG} 2>&1 < /dev/null & echo $! > /tmp/pids'
    await server.run("sh", "-c", start, _RECEIVE, addresses[server], "rdma")

    async def find(pattern: str) -> re.Match[str] | None:
        return re.search(pattern, await server.run("cat", _LOG))

    async def read_log() -> str:
        return f"Mooncake in {server.pod}; its output ends:\n{(await server.run('cat', _LOG))[-3000:]}"

    try:
        ready = await waiting.wait(lambda: find(r"LISTENS (\d+) (\d+)"), seconds=300, describe=read_log)
        target = (f"{addresses[server]}:{ready[1]}", ready[2])
        output = await client.run("sh", "-c", 'python3 -c "$0" "$@" 2>&1', _SEND, addresses[client], "rdma", *target)
        sent = re.search(r"^SENT (\w+)$", output, re.MULTILINE)
        assert sent is not None, output
        await waiting.wait(lambda: find(f"DIGEST {sent[1]}"), seconds=300, describe=read_log)
    finally:
        await traffic.end(server)
