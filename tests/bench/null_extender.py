"""An extender that answers at once and decodes nothing, to measure the cost of the protocol in a scheduler.

`python null_extender.py` prints `listening on HOST:PORT` on standard error and serves until ended.
"""

import asyncio
import sys

import uvloop

_LENGTH, _END = b"content-length:", b"\r\n\r\n"
_SCORED, _TAKEN = b'{"nodeScore":{},"errorMessage":""}', b'{"errorMessage":""}'
_NAMES = b'"NodeNames":'  # the last field of kube-scheduler's body


class NullExtender(asyncio.Protocol):
    """One connection: counts the bytes of a body, and answers."""

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0
        self._path = self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            end = self._head.find(_END)
            if end < 0:
                return
            head = self._head[:end].lower()
            self._path = head.split(b" ", 2)[1]
            self._missing = int(head.partition(_LENGTH)[2].split(b"\r\n", 1)[0])
            data, self._head, self._body = self._head[end + len(_END) :], b"", b""
        self._missing -= len(data)  # a scheduler sends the next request only after the answer
        if self._path == b"/scheduler/filter":
            self._body += data
        if not self._missing:
            answer = self._answer()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
            self._transport.write(head.encode() + answer)  # type: ignore[attr-defined]  # a stream's is one

    def _answer(self) -> bytes:
        if self._path == b"/scheduler/filter":  # all nodes, as they came
            return b'{"NodeNames":' + self._body.rpartition(_NAMES)[2].strip()
        if self._path == b"/scheduler/prioritize":
            return b"[]"
        return _SCORED if self._path.endswith(b"/prioritize") else _TAKEN


async def main() -> None:
    """Serve until ended."""
    server = await asyncio.get_running_loop().create_server(NullExtender, "127.0.0.1", 0)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
