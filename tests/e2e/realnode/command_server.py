"""Runs in a virtual machine the commands that the test's process sends: `python -m realnode.command_server ADDRESS`.

A connection is one command: a JSON list on a line. The answer is its exit code and its output, as a JSON list. Standard
library only.
"""

import asyncio
import json
import sys

from realnode import layout


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    command = json.loads(await reader.readline())
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    writer.write(json.dumps([process.returncode, output.decode(errors="replace")]).encode())
    writer.close()


async def _serve(address: str) -> None:
    server = await asyncio.start_server(_answer, address, layout.COMMAND_PORT)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
