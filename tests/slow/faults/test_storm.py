"""An overload of reviews, more than API servers send, directly to one webhook process over TLS."""

import asyncio
import collections
import json
import time

import admitting
import processes
import shell

PER_SECOND, SECONDS, PODS, CONNECTIONS = 1000, 30, 10_000, 20
PATH = "/mutate/pods?timeout=5s"
REVIEW = json.loads((admitting.WIRE / "admission-pods-bench.json").read_text())
_NAME = "name-of-the-pod"


def review() -> bytes:
    tree = json.loads(json.dumps(REVIEW))
    pod = tree["request"]["object"]
    pod["metadata"] |= {"name": _NAME, "labels": pod["metadata"].get("labels", {}) | {"railwright.io/fabric": "f"}}
    return json.dumps(tree).encode()


class Storm:
    """Sends requests at a rate, or as fast as client and server on this machine allow."""

    def __init__(self, callers: list[shell.Caller], body: bytes) -> None:
        self.callers, self.body = callers, body
        self.statuses: collections.Counter[int] = collections.Counter()
        self.unpatched = 0
        self.seconds: list[float] = []  # each took

    async def run(self, seconds: float) -> None:
        """Send requests for `seconds`."""
        await asyncio.gather(*(self._call(caller, index, seconds) for index, caller in enumerate(self.callers)))

    async def _call(self, caller: shell.Caller, index: int, seconds: float) -> None:
        began = time.monotonic()
        for number in range(index, int(PER_SECOND * seconds), len(self.callers)):
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
            if (sent := time.monotonic()) > began + seconds:
                return
            name = f"pod-{number % PODS:06}".ljust(len(_NAME), "x").encode()
            answer = await caller.ask(self.body.replace(_NAME.encode(), name), path=PATH)
            self.seconds.append(time.monotonic() - sent)
            self.statuses[answer.status] += 1
            self.unpatched += b'"patch"' not in answer.body


async def test_36_every_review_is_answered_under_overload(started, tmp_path):
    authority = shell.Authority(tmp_path)
    server = await started("webhook", *processes.without_cluster(tmp_path), *authority.write_options("webhook"))
    callers = [await server.open(authority.context()) for _ in range(CONNECTIONS)]
    storm = Storm(callers, review())
    await storm.run(SECONDS / 3)
    before = server.memory()
    await storm.run(SECONDS * 2 / 3)
    grown = (server.memory() - before) / 2**20
    assert set(storm.statuses) == {200}
    assert storm.unpatched == 0
    assert grown < 8, "MiB"
    ordered = sorted(storm.seconds)
    assert ordered[int(len(ordered) * 0.99)] < 1, "well under the 5 s of the API server"

    for caller in callers:
        await caller.close()
