"""Helm's post-renderer for a plane without Services: webhooks are called by URL, and for one namespace only.

`webhook_urls.py PORT NAMESPACE`, manifests on standard input. Everything else stays as in the chart, also the empty
caBundle.
"""

import json
import sys

import yaml

port, namespace = sys.argv[1:]
documents = json.loads(json.dumps(list(yaml.safe_load_all(sys.stdin))))  # copies, because YAML aliases are one object
for document in filter(None, documents):
    if document["kind"].endswith("WebhookConfiguration"):
        for hook in document["webhooks"]:
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"}
            scope = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
            hook["namespaceSelector"].setdefault("matchExpressions", []).append(scope)
yaml.safe_dump_all(filter(None, documents), sys.stdout)
