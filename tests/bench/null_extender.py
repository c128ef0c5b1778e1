"""An extender that answers at once and decodes nothing, to measure the cost of the protocol in Volcano.

`python null_extender.py` prints `listening on HOST:PORT` on standard error and serves until ended.
"""

import asyncio
import sys

import uvloop

_LENGTH, _END = b"content-length:", b"\r\n\r\n"
_SCORED, _TAKEN = b'{"nodeScore":{},"errorMessage":""}', b'{"errorMessage":""}'


class Null(asyncio.Protocol):
    """One connection: counts the bytes of a body, and answers."""

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0
        self._answer = _TAKEN

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            end = self._head.find(_END)
            if end < 0:
                return
            head = self._head[:end].lower()
            self._answer = _SCORED if head.startswith(b"post ") and b"/prioritize " in head[:200] else _TAKEN
            self._missing = int(head.partition(_LENGTH)[2].split(b"\r\n", 1)[0])
            data, self._head = self._head[end + len(_END) :], b""
        self._missing -= len(data)  # Volcano sends the next request only after the answer
        if not self._missing:
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(self._answer)}\r\n\r\n"
            self._transport.write(head.encode() + self._answer)  # type: ignore[attr-defined]  # a stream's is one


async def main() -> None:
    """Serve until ended."""
    server = await asyncio.get_running_loop().create_server(Null, "127.0.0.1", 0)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
