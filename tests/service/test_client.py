"""The API server over TLS: trusted certificates, and a replacement of its CA."""

import contextlib
import datetime as dt
import ssl

import api_stub
import pytest
import reserved_ports
from aiohttp import web
from bare_certificates import key_pem, make, pem
from cryptography import x509

from certs import pki
from railwright.cluster import client as clients
from railwright.cluster import errors

NOW, DAY = dt.datetime.now(dt.UTC), dt.timedelta(days=1)


async def version(_request):
    return web.json_response({"gitVersion": "v1"})


@contextlib.asynccontextmanager
async def serving(folder, authority, port=0):
    """Yield an API server with a certificate of this authority."""
    about = {"common_name": "api", "hosts": ["127.0.0.1"], "usages": {"server"}}
    leaf = pki.issue_certificate(authority, **about, now=NOW, lifetime=DAY)
    async with serving_pem(folder, leaf.certificate_pem + leaf.key_pem, port) as bound:
        yield bound


@contextlib.asynccontextmanager
async def serving_pem(folder, pem, port=0):
    """Yield an API server with these certificates and this key."""
    (folder / "api.pem").write_bytes(pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "api.pem")
    async with api_stub.serve_routes(web.get("/version", version), port=port, tls=context) as bound:
        yield bound


async def test_a_new_ca_of_the_api_server_is_trusted_once_it_is_in_the_file(tmp_path):
    """Kubelet renews ca.crt of every pod; a server that never read it again would need a restart."""
    old, new = (pki.issue_ca(name, now=NOW, lifetime=DAY) for name in ("old", "new"))
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.certificate_pem)
    with reserved_ports.reserve() as port:
        client = await clients.connect(api_stub.kubeconfig(tmp_path, port, ca=ca))
        try:
            async with serving(tmp_path, old, port):
                assert await client.get("/version")
            async with serving(tmp_path, new, port):
                for _ in range(2):
                    with pytest.raises(errors.UnreachableError, match="certificate"):
                        await client.get("/version")
                ca.write_bytes(old.certificate_pem + new.certificate_pem)
                with contextlib.suppress(errors.UnreachableError):
                    await client.get("/version")
                assert await client.get("/version")
        finally:
            await client.close()


async def ask(folder, authority, served):
    """Return the answer of an API server with these certificates to a client that trusts this CA."""
    (folder / "ca.crt").write_bytes(pem(authority[0]))
    async with serving_pem(folder, served) as port:
        client = await clients.connect(api_stub.kubeconfig(folder, port, ca=folder / "ca.crt"))
        try:
            return await client.get("/version")
        finally:
            await client.close()


AUTHORITY = make("kubernetes", authority=True)
BETWEEN = make("between", AUTHORITY, authority=True)


@pytest.mark.parametrize(("issuer", "chain"), [(AUTHORITY, ()), (BETWEEN, (BETWEEN[0],))], ids=["root", "between"])
async def test_a_ca_without_key_identifiers_is_trusted_as_by_kubectl(tmp_path, issuer, chain):
    """EKS has such certificates. Python 3.13 refuses them by default: 'Missing Authority Key Identifier'."""
    leaf, key = make("api", issuer)
    assert await ask(tmp_path, AUTHORITY, pem(leaf, *chain) + key_pem(key)) == b'{"gitVersion": "v1"}'


NO_AUTHORITY = make("a workload", AUTHORITY)  # a certificate of the authority, which may issue none
DISHONEST = {
    "of another authority with its name": (make("api", make("kubernetes", authority=True)), ()),
    "of itself": (make("kubernetes"), ()),
    "for another host": (make("api", AUTHORITY, host="127.0.0.2"), ()),
    "expired": (make("api", AUTHORITY, until=NOW - DAY), ()),
    "for clients only": (make("api", AUTHORITY, usage=x509.OID_CLIENT_AUTH), ()),
    "issued by a certificate that is no authority": (make("api", NO_AUTHORITY), (NO_AUTHORITY[0],)),
}


@pytest.mark.parametrize("case", DISHONEST)
async def test_every_other_flaw_of_a_certificate_is_refused(tmp_path, case):
    (leaf, key), chain = DISHONEST[case]
    with pytest.raises(errors.UnreachableError, match="its certificate is not trusted"):
        await ask(tmp_path, AUTHORITY, pem(leaf, *chain) + key_pem(key))
