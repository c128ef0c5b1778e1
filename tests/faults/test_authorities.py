"""Certificate and CA of a running server rotate under load: callers trust the bundle that they last read."""

import asyncio
import contextlib
import datetime as dt
import ssl

import pytest
import pytest_asyncio
import shell
import turning_clock
from cryptography import x509

from certs import inventory, pki, rotation, schedules

SECOND = dt.timedelta(seconds=1)
SCHEDULE = schedules.Schedule(overlap=0 * SECOND, settle=0.8 * SECOND, propagation=1.2 * SECOND)
LATE_CALLERS, LATE_SERVER = (0.05, 0.6), (0.9, 0.05)  # seconds between two reads of the server, and of a caller
SPECS = (inventory.CertificateSpec("webhook", "railwright-webhook", pki.Usage.SERVER, ("localhost", "127.0.0.1")),)


class Store:
    """A Secret, a caBundle, and the rotator that fills them."""

    def __init__(self, clock: turning_clock.Clock, schedule=SCHEDULE) -> None:
        self.clock, self.schedule = clock, schedule
        self.keyring, self.leaf, self.bundle = rotation.Keyring(), rotation.StoredCertificate(), b""
        self.fingerprint, self.same = None, 0.0

    def step(self, *, renew=False) -> rotation.Step | rotation.Wait:
        seen = rotation.Observed(self.keyring, {"webhook": self.leaf}, {"pods": self.bundle})
        mark = (self.leaf, self.bundle)
        if mark != self.fingerprint:
            self.fingerprint, self.same = mark, self.clock()
        now, unchanged_for = dt.datetime.now(dt.UTC), (self.clock() - self.same) * SECOND
        outcome = rotation.plan(
            seen, SPECS, now=now, schedule=self.schedule, unchanged_for=unchanged_for, renew_ca=renew
        )
        if isinstance(outcome, rotation.Step):
            writes = rotation.build_changes(outcome, seen, SPECS, now=now, schedule=self.schedule)
            self.keyring = writes.keyring or self.keyring
            self.bundle = self.bundle if writes.bundle is None else writes.bundle
            self.leaf = writes.certificates.get("webhook", self.leaf)
        return outcome

    async def rest(self) -> None:
        """Make steps until none is due for days."""
        while True:
            next_step = self.step()
            if isinstance(next_step, rotation.Wait):
                if not next_step.soon:
                    return
                await self.clock.sleep(0.05)


async def kubelet(store, folder, running, seconds) -> None:
    """Write the Secret to the server's files, some time after it changed."""
    while True:
        await store.clock.sleep(seconds)
        shell.write_pair(folder, store.leaf.pair)
        running.shell._certificate.reload()


class Caller:
    """An API server: a new connection each time, trusting the bundle as it last saw it."""

    def __init__(self, store, running, seconds) -> None:
        self._store, self._running, self._seconds = store, running, seconds
        self._read()
        self.presented: list[int] = []
        self.failed: list[Exception] = []

    def _read(self) -> None:
        self._at = self._store.clock()
        self._context = ssl.create_default_context(cadata=self._store.bundle.decode())

    async def forever(self) -> None:
        while True:
            try:
                caller = await self._running.open(self._context)
                seen = caller.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                assert (await caller.ask(b"1")).status == 200
                await caller.close()
                self.presented.append(x509.load_der_x509_certificate(seen).serial_number)
            except (ssl.SSLError, OSError, AssertionError) as error:
                self.failed.append(error)
            if self._store.clock() - self._at > self._seconds:
                self._read()


@pytest_asyncio.fixture(loop_scope="session")
async def store():
    async with turning_clock.running() as clock:
        yield Store(clock)


@contextlib.asynccontextmanager
async def under_load(store, folder, late):
    place = shell.write_pair(folder, store.leaf.pair)
    async with shell.running(shell.ECHO, "--tls-cert", str(place[0]), "--tls-key", str(place[1])) as running:
        callers = [Caller(store, running, late[1]) for _ in range(3)]
        tasks = [asyncio.create_task(caller.forever()) for caller in callers]
        tasks.append(asyncio.create_task(kubelet(store, folder, running, late[0])))
        try:
            yield callers
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("late", [LATE_CALLERS, LATE_SERVER], ids=["late callers", "late server"])
async def test_28_no_request_fails_while_serving_certificate_and_ca_rotate(fault, store, tmp_path, late):
    await store.rest()
    first = store.leaf.pair
    async with under_load(store, tmp_path, late) as callers:
        await shell.until(lambda: all(len(caller.presented) > 3 for caller in callers))
        store.step(renew=True)
        await store.rest()
        last = serial(store.leaf.pair)
        await shell.until(lambda: all(caller.presented[-1] == last for caller in callers))
    assert [caller.failed for caller in callers] == [[], [], []]
    assert pki.find_issuer(store.leaf.pair.certificate_pem, pki.split_bundle(store.bundle))
    assert pki.find_issuer(first.certificate_pem, pki.split_bundle(store.bundle)) is None, "the old authority is gone"
    assert {serial(first), last} == set(callers[0].presented)
    fault.saw(
        f"bundle read {late[1]:g} s late, certificate {late[0]:g} s late: "
        f"{sum(len(caller.presented) for caller in callers)} new connections while certificate and CA rotated, 0 failed"
    )


async def test_28_requests_fail_if_the_rotation_is_in_the_wrong_order(fault, store, tmp_path):
    """Replace the bundle while servers present the old serving certificate, as Spiderpool's chart did."""
    await store.rest()
    async with under_load(store, tmp_path, LATE_CALLERS) as callers:
        await shell.until(lambda: all(len(caller.presented) > 3 for caller in callers))
        store.bundle = pki.issue_ca("new", now=dt.datetime.now(dt.UTC), lifetime=shell.DAY).certificate_pem
        await shell.until(lambda: all(caller.failed for caller in callers))
    assert isinstance(callers[0].failed[0], ssl.SSLCertVerificationError)
    fault.saw("bundle replaced before the certificate: every caller fails, and the test detects it")


def serial(pair: pki.Pair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate_pem).serial_number
