"""The API server over TLS, while its authority is replaced under us."""

import contextlib
import datetime as dt
import ssl

import pytest
from aiohttp import web

from certs import issue
from cluster import client as clients
from cluster import errors

NOW, DAY = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
TEXT = """
apiVersion: v1
kind: Config
current-context: stub
contexts: [{{name: stub, context: {{cluster: stub, user: stub}}}}]
clusters: [{{name: stub, cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: "{ca}"}}}}]
users: [{{name: stub, user: {{token: s3cret}}}}]
"""


async def version(_request):
    return web.json_response({"gitVersion": "v1"})


@contextlib.asynccontextmanager
async def serving(folder, authority, port=0):
    """An API server with a certificate of this authority."""
    about = {"common_name": "api", "hosts": ["127.0.0.1"], "usages": {"server"}}
    leaf = issue.issue_leaf(authority, **about, now=NOW, lifetime=DAY)
    (folder / "api.pem").write_bytes(leaf.certificate_pem + leaf.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "api.pem")
    app = web.Application()
    app.router.add_get("/version", version)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, reuse_address=True).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_an_api_server_with_a_new_authority_is_known_again_once_the_file_has_it(tmp_path):
    """Kubelet renews ca.crt of every pod; a server that never read it again would have to be restarted by somebody."""
    old, new = (issue.issue_authority(name, now=NOW, lifetime=DAY) for name in ("old", "new"))
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.certificate_pem)
    async with serving(tmp_path, old) as port:
        (tmp_path / "kubeconfig").write_text(TEXT.format(port=port, ca=ca))
        client = await clients.connect(str(tmp_path / "kubeconfig"))
        assert await client.get("/version")
    try:
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
