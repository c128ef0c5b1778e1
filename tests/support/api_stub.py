"""A kubeconfig for an API server of the test's own on loopback."""

import pathlib

_TEXT = """
apiVersion: v1
kind: Config
current-context: stub
contexts: [{{name: stub, context: {{cluster: stub, user: stub}}}}]
clusters: [{{name: stub, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: stub, user: {{token: s3cret}}}}]
"""


def kubeconfig(folder: pathlib.Path, port: int) -> str:
    path = folder / "kubeconfig"
    path.write_text(_TEXT.format(port=port))
    return str(path)
