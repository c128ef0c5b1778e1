"""Defects of an installation for tests, each with the row that reports it and words of its message."""

import base64
import datetime as dt
import json

import devices
import installations
from installations import DAY, LEAF, NOW

from certs import pki
from railwright.cli.checking import command, rows
from railwright.fabric import names

WEBHOOK, EXTENDER = "railwright-webhook", "railwright-extender"


def run_checks(snapshot):
    """Return the results of the rows on one snapshot."""
    return tuple(rows.run_checks(command.GROUPS, snapshot))


def assess_trees(trees, **more):
    return run_checks(installations.build_snapshot(trees, **more))


def find(trees, check, **more):
    """Return the result of a row that has only one."""
    (result,) = [result for result in assess_trees(trees, **more) if result.check == check]
    return result


def find_named(trees, source, name):
    return next(tree for tree in trees[source] if tree["metadata"]["name"] == name)


def find_hook(trees, name):
    return next(h for source in ("mutating", "validating") for h in trees[source][0]["webhooks"] if h["name"] == name)


def edit_policy(old, new):
    def change(trees):
        text = trees["policy"][0]["data"][names.POLICY_KEY]
        assert old in text
        trees["policy"][0]["data"][names.POLICY_KEY] = text.replace(old, new)

    return change


def change_claims(*changes):
    """Add a fabric of claims, then make the changes."""

    def change(trees):
        installations.add_claims(trees)
        for change in changes:
            change(trees)

    return change


def rename_networks(prefix):
    """Let the policy name networks that do not exist."""
    return lambda trees: [edit_policy(f"prod/rail{k}, ", f"{prefix}{k}, ")(trees) for k in (0, 1)]


def share_devices(trees):
    """Give fabric ib /dev/infiniband instead of device pools, and half of the GPUs that nodes have."""
    for rail in (0, 1):
        edit_policy(f"{{name: rail{rail}, resource: nvidia.com/mlx5_{rail}}}", f"{{name: rail{rail}}}")(trees)
    keys = "mounts: {devInfiniband: true}\n    gpusPerNode: 4"
    edit_policy("transport: infiniband", f"transport: infiniband\n    {keys}")(trees)


def set_roots(root):
    """Give all GPUs one PCIe root."""

    def change(trees):
        for offered in trees["device-slices"]:
            if offered["spec"]["driver"] == "gpu.nvidia.com":
                for device in offered["spec"]["devices"]:
                    device["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": root}

    return change


def volcano(old, new):
    """Replace a text in Volcano's configuration."""

    def change(trees):
        ((key, text),) = trees["volcano"][0]["data"].items()
        assert old in text
        trees["volcano"][0]["data"][key] = text.replace(old, new)

    return change


def drop(source, name):
    return lambda trees: trees[source].remove(find_named(trees, source, name))


def clear(source):
    return lambda trees: trees[source].clear()


def put(source, name, value, *path):
    """Set the value at a path of an object."""
    return lambda trees: _set(find_named(trees, source, name), value, *path)


def put_hook(name, value, *path):
    return lambda trees: _set(find_hook(trees, name), value, *path)


def _set(tree, value, *path):
    *above, last = path
    for key in above:
        tree = tree[key]
    tree[last] = value


def issue_certificate(server=WEBHOOK, **times):
    """Issue another certificate by the CA that the caBundle trusts."""

    def change(trees):
        leaf, authority = installations.pair(f"{server}.{names.NAMESPACE}.svc", **times)
        other, _ = installations.pair(f"{EXTENDER}.{names.NAMESPACE}.svc", authority=authority)
        trees[f"{server}-secret"][0]["data"] = installations.secret(leaf)["data"]
        if server == WEBHOOK:
            trees["railwright-extender-secret"][0]["data"] = installations.secret(other)["data"]
            installations.trust(trees, authority)

    return change


def issue_old_authority(trees):
    """Issue a CA with twenty days left, and a new certificate of a month."""
    authority = pki.issue_ca("a", now=NOW - 345 * DAY, lifetime=365 * DAY)
    leaf, _ = installations.pair(f"{WEBHOOK}.{names.NAMESPACE}.svc", days=30, left=19, authority=authority)
    trees[f"{WEBHOOK}-secret"][0]["data"] = installations.secret(leaf)["data"]
    installations.trust(trees, authority)


def certify_another_host(trees):
    leaf, authority = installations.pair("webhook.example")
    trees[f"{WEBHOOK}-secret"][0]["data"] = installations.secret(leaf)["data"]
    installations.trust(trees, authority)


def mix_pair(trees):
    leaf, _ = installations.pair("x")
    trees[f"{WEBHOOK}-secret"][0]["data"]["tls.key"] = base64.b64encode(leaf.key_pem).decode()


def set_foreign_bundle(trees):
    _, authority = installations.pair("x")
    bundle = base64.b64encode(authority.certificate_pem).decode()
    find_hook(trees, "namespaced-workloads.railwright.io")["clientConfig"]["caBundle"] = bundle


def edit_nodes(change):
    def change_nodes(trees):
        for node in trees["nodes"]:
            change(node)

    return change_nodes


def add_refusal(trees):
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "train", "name": "llm"}
    when = f"{NOW - dt.timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"
    trees["jobs.v1.batch"].append(installations.build_workload("Job", "llm", {}))
    trees["refusals"].append({"involvedObject": about, "lastTimestamp": when, "message": "rail9 is no rail"})


def set_one_replica(trees):
    find_named(trees, "deployments", WEBHOOK)["spec"]["replicas"] = 1


def add_scheduler(trees):
    """Add the chart's scheduler, whose image cannot be pulled."""
    name = "railwright-scheduler"
    labels = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/component": "scheduler"}
    deployment = {"spec": {"replicas": 2, "selector": {"matchLabels": labels}}, "status": {}}
    trees["deployments"].append({"metadata": {"name": name}, **deployment})
    waiting = {"reason": "ErrImagePull", "message": "kube-scheduler:v1.35.0: not found"}
    status = {"containerStatuses": [{"state": {"waiting": waiting}}]}
    trees["own-pods"].append({"metadata": {"name": f"{name}-0", "labels": labels}, "status": status})


def rename_fabric(trees):
    """Rename the fabric of running pods and of their workloads in the policy."""
    trees["deployments.v1.apps"].append(
        installations.build_workload(
            "Deployment", "dep", {"labels": {names.FABRIC: "old"}}, labels={names.FABRIC: "old"}
        )
    )
    trees["pods"].append(installations.pod("dep-0", {names.FABRIC: "old"}, {names.INJECTION: "{}"}, gpus=8))


def rename_fabric_of_namespace(trees):
    """Rename the fabric of a namespace whose label opted a running pod in."""
    find_named(trees, "namespaces", "train")["metadata"]["labels"][names.FABRIC] = "old"
    record = {names.INJECTION: json.dumps({"fabric": "old"})}
    trees["pods"].append(installations.pod("bare-0", {}, record, gpus=8))


def exclude_namespace(trees):
    """Limit the fabric of a namespace to others."""
    find_named(trees, "namespaces", "train")["metadata"]["labels"][names.FABRIC] = "roce"
    edit_policy("transport: roce", "transport: roce\n    namespaces: {kubernetes.io/metadata.name: default}")(trees)


def set_image(trees):
    for deployment in trees["deployments"]:
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/railwright:v0.0.9"


def overwrite(trees):
    """Add Events of the rotator about an overwritten caBundle: one of the last hour and an older one."""
    about = {"kind": "MutatingWebhookConfiguration", "name": "railwright"}
    for minutes, message in ((30, "cainjector overwrites it"), (90, "kubectl overwrites it")):
        when = f"{installations.NOW - dt.timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
        trees["overwritten"].append({"involvedObject": about, "lastTimestamp": when, "message": message})


def drop_leaf_label(node):
    node["metadata"]["labels"].pop(LEAF)


def place(name, scheduler, *requests, injected=True):
    """Add a pod that a scheduler has placed on a node of the fabrics, with these resources beside its GPUs."""

    def change(trees):
        pod = installations.pod(name, {}, {names.INJECTION: "{}"} if injected else {}, gpus=1)
        pod["spec"] |= {"nodeName": "gpu-0", "schedulerName": scheduler}
        pod["spec"]["containers"][0]["resources"]["limits"] |= dict.fromkeys(requests, "1")
        find_named(trees, "namespaces", "train")["metadata"]["labels"].pop(names.FABRIC, None)
        trees["pods"].append(pod)

    return change


def add_unpulled_preflight(trees):
    pod = installations.pod("new", {names.FABRIC: "roce"}, {names.INJECTION: "{}"})
    pod.setdefault("spec", {})["initContainers"] = [{"name": "railwright-preflight", "image": "site/railwright:1"}]
    waiting = {"name": "railwright-preflight", "image": "site/railwright:1"}
    waiting["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}
    pod["status"] = {"phase": "Pending", "initContainerStatuses": [waiting], "startTime": "2026-01-01T00:00:00Z"}
    trees["pods"].append(pod)


def add_preflights(failing, *, phase="Failed", passing=0, hours=0, label="roce", message=None):
    """Add pods whose preflight failed, or passed with a message, started so many hours ago."""

    def change(trees):
        for index in range(failing + passing):
            record = {names.INJECTION: json.dumps({"fabric": "roce"})}
            pod = installations.pod(f"rank-{index}", {names.FABRIC: label} if label else {}, record)
            pod["spec"]["initContainers"] = [{"name": "railwright-preflight"}]
            ended = {"exitCode": 0, "message": message}
            if index < failing:
                ended = {"exitCode": 1, "message": "railwright preflight failed: rail1: no device mlx5_1"}
            start = (NOW - dt.timedelta(hours=hours, minutes=index)).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = {"name": "railwright-preflight", "state": {"terminated": ended}}
            is_passed = index >= failing
            pod["status"] = {"phase": "Running" if is_passed else phase, "startTime": start}
            pod["status"]["initContainerStatuses"] = [status]
            trees["pods"].append(pod)

    return change


# one break a line: what is done to the cluster, the row that has to say so, how it ends, and words it has to use
BREAKS = {
    "no namespace": (drop("namespaces", names.NAMESPACE), "installed", "fail", "does not exist"),
    "namespace going": (put("namespaces", names.NAMESPACE, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
                        "installed", "fail", "is being deleted"),
    "no webhook": (drop("deployments", WEBHOOK), "installed", "fail", "Deployment railwright-webhook"),
    "webhook not ready": (put("deployments", WEBHOOK, 1, "status", "readyReplicas"), "replicas", "fail",
                          "1 of 2"),
    "webhook scaled away": (put("deployments", WEBHOOK, 0, "spec", "replicas"), "replicas", "fail", "to 0"),
    "a scheduler without an image": (
        add_scheduler, "replicas", "fail",
        "0 of 2 ready; railwright-scheduler-0: ErrImagePull: kube-scheduler:v1.35.0: not found"),
    "one replica": (set_one_replica, "replicas", "warn",
                    "1 replica: opted-in pods cannot be created while it restarts or its node is drained"),
    "another release": (set_image, "images", "warn", "0.0.9"),
    "no secret": (clear(f"{WEBHOOK}-secret"), "certificates", "fail", "railwright-webhook-tls does not exist"),
    "another key": (mix_pair, "certificates", "fail", "not its key"),
    "another name": (lambda t: t[f"{EXTENDER}-secret"][0].update(
        data=installations.secret(installations.pair("localhost")[0])["data"]), "certificates", "fail",
        "railwright-extender.railwright-system.svc"),
    "another host": (certify_another_host, "certificates", "fail", f"{WEBHOOK}.railwright-system.svc"),
    "another service": (put_hook("pods.railwright.io", "rw", "clientConfig", "service", "name"), "webhook-entries",
                        "fail",
                        "Service is railwright-system/rw, expected railwright-system/railwright-webhook"),
    "expired": (issue_certificate(days=30, left=-1), "certificates", "fail", "expired"),
    "a future": (issue_certificate(days=30, left=31), "certificates", "fail", "valid only from"),
    "soon": (issue_certificate(days=90, left=20), "certificates", "warn", "less than a third of its validity is left"),
    "another authority": (set_foreign_bundle, "ca-bundle", "fail", "namespaced-workloads.railwright.io"),
    "an empty bundle": (put_hook("policy.railwright.io", "", "clientConfig", "caBundle"), "ca-bundle", "fail",
                        "caBundle is empty"),
    "the authority ends": (issue_old_authority, "ca-bundle", "warn", "the CA expires 2"),
    "another writer": (overwrite, "ca-bundle", "warn", "MutatingWebhookConfiguration: cainjector overwrites"),
    "no configuration": (clear("mutating"), "webhook-entries", "fail", "does not call the webhook"),
    "no validation": (clear("validating"), "webhook-entries", "fail", "does not call the webhook"),
    "an entry short": (lambda t: t["mutating"][0]["webhooks"].pop(), "webhook-entries", "fail",
                       "namespaced-workloads.railwright.io"),
    "an entry too many": (lambda t: t["mutating"][0]["webhooks"].append(
        {**find_hook(t, "namespaced-workloads.railwright.io"), "name": "x.railwright.io"}), "webhook-entries", "warn",
        "x.railwright.io"),
    "a wrong path": (put_hook("pods.railwright.io", "/mutate", "clientConfig", "service", "path"), "webhook-entries",
                     "fail",
                     "path is /mutate, expected /mutate/pods"),
    "a rule short": (put_hook("workloads.railwright.io", [], "rules"), "webhook-entries", "fail",
                     "CREATE apps/deployments"),
    "a wide selector": (put_hook("pods.railwright.io", {}, "objectSelector"), "webhook-entries", "fail", "empty"),
    "a condition short": (put_hook("namespaced-workloads.railwright.io", [], "matchConditions"), "webhook-entries",
                          "fail", "has-no-fabric-of-its-own"),
    "kube-system": (put_hook("pods.railwright.io", {}, "namespaceSelector"), "webhook-entries", "fail",
                    "its excluded namespaces lack kube-system, railwright-system"),
    "open": (put_hook("pods.railwright.io", "Ignore", "failurePolicy"), "webhook-entries", "warn", "Ignore"),
    "too patient": (put_hook("pods.railwright.io", 30, "timeoutSeconds"), "webhook-entries", "warn",
                    "timeoutSeconds is 30, expected 5 to 10"),
    "never again": (put_hook("pods.railwright.io", "Never", "reinvocationPolicy"), "webhook-entries",
                    "fail", "reinvocationPolicy is Never, expected IfNeeded"),
    "no policy": (clear("policy"), "policy", "fail", "does not exist"),
    "no key": (lambda t: t["policy"][0].update(data={"x": ""}), "policy", "fail", "it has x"),
    "a bad policy": (edit_policy("transport: roce", "transport: rocev2"), "policy", "fail",
                     "line 6: fabrics.roce.transport"),
    "no GPUs": (edit_nodes(lambda n: [n["status"][w].pop("nvidia.com/gpu") for w in ("capacity", "allocatable")]),
                "rail-offered", "warn", "no node has an accelerator (nvidia.com/gpu)"),
    "no network": (drop("networks", "rail1"), "rail-networks", "fail",
                   "rail1: prod/rail1: pods are rejected"),
    "no networks of a long name": (rename_networks("of-the-training-platform/lan"), "rail-networks", "fail",
                                   "rail0: of-the-training-platform/lan0, rail1: of-the-training-platform/lan1: pods"),
    "a network that is no JSON": (
        put("networks", "rail1", '{"type": "macvlan", "mode": "bridge",}', "spec", "config"), "rail-networks", "fail",
        "NetworkAttachmentDefinition prod/rail1 is invalid (line 1, column 3"),
    "another pool": (put("networks", "rail0", {names.NAD_RESOURCE_NAME: "intel.com/x"}, "metadata", "annotations"),
                     "rail-networks", "fail", "intel.com/x"),
    "nowhere": (edit_nodes(lambda n: [n["status"][w].pop("nvidia.com/mlx5_0") for w in ("capacity", "allocatable")]),
                "rail-offered", "fail", "nvidia.com/mlx5_0"),
    "no pool": (edit_policy("    - {name: rail0, resource: nvidia.com/mlx5_0}\n", "    - {name: rail0}\n"),
                "rail-offered", "warn", "no device is requested for rail0"),
    "dead": (put("nodes", "gpu-1", "0", "status", "allocatable", "nvidia.com/mlx5_1"), "rail-dead", "warn",
             "gpu-1: 0 of 1 nvidia.com/mlx5_1 allocatable"),
    "a broken rail of nobody": (
        put("nodes", "gpu-1", {names.BROKEN_RAILS: "rail0,mlx5_9"}, "metadata", "annotations"),
        "rail-dead", "warn", "gpu-1: railwright.io/broken-rails names mlx5_9, but no fabric has such a rail"),
    "bare": (lambda t: [find_named(t, "nodes", "gpu-2")["status"][w].pop("nvidia.com/mlx5_0") for w in ("capacity",
             "allocatable")],
             "rail-offered", "warn", "gpu-2 lacks nvidia.com/mlx5_0"),
    "a shape of nobody": (edit_policy("nodeShapes:", "nodeShapes:\n- {name: b200, match: {shape: b200}}"),
                          "node-shapes", "warn", "b200"),
    "no leaf": (edit_nodes(drop_leaf_label), "domains", "fail", LEAF),
    "one leaf short": (lambda t: drop_leaf_label(find_named(t, "nodes", "gpu-0")), "domains", "warn", "gpu-0"),
    "no class": (change_claims(drop("device-classes", "dranet")), "claim-devices", "fail",
                 "there is no DeviceClass dranet; the cluster has gpu.nvidia.com"),
    "a class that is not plain": (
        change_claims(put("device-classes", "dranet", [{"cel": {"expression": "1 == 1"}}], "spec", "selectors")),
        "claim-devices", "warn", "the devices of DeviceClass dranet do not count in scores, because an expression "),
    "no slice of the driver": (
        change_claims(lambda t: t.update({"device-slices": [s for s in t["device-slices"] if "gpu.nvidia" in str(s)]})),
        "claim-devices", "fail", "no ResourceSlice has a device of DeviceClass dranet"),
    "no device of a rail": (change_claims(edit_policy("rdmap16s27", "rdmap99s0")), "claim-devices", "warn",
                            "gpu-0: rail0 has 0 of 1 device with dra.net/rdmaDevice rdmap99s0; the node has rdmap"),
    "an attribute of no device": (
        change_claims(edit_policy("deviceClass: dranet,", "deviceClass: dranet, railAttribute: a.b/x,")),
        "claim-devices", "warn",
        "gpu-0: rail0 has 0 of 1 device with a.b/x rdmap16s27; the node has no such attribute"),
    "a tainted device": (
        change_claims(lambda t: t.update({"device-slices": [
            s for n in range(3) for s in devices.build_slices(f"gpu-{n}", taints={"pci-0000-10-1b-0": "NoSchedule"})
        ]})), "rail-dead", "warn", "gpu-0: 0 of 1 claims.railwright.io/claimed.rail0 allocatable"),
    "too few devices of a rail": (change_claims(edit_policy("gpusPerNode: 8", "gpusPerNode: 8\n    devicesPerRail: 2")),
                                  "claim-devices", "warn", "gpu-0: rail0 has 1 of 2 devices"),
    "no pairs": (change_claims(set_roots("pci0008:00")), "claim-devices", "fail",
                 "gpu-0: resource.kubernetes.io/pcieRoot is never equal: GPUs have pci0008:00, NICs pci0000:10 and 3"),
    "no attribute of pairs": (change_claims(edit_policy("gpu.nvidia.com}", "gpu.nvidia.com, pairBy: numaNode}")),
                              "claim-devices", "fail",
                              "gpu-0: resource.kubernetes.io/numaNode is never equal: GPUs have none, NICs "),
    "no hypernode": (clear("hypernodes"), "domains", "fail", "no HyperNode"),
    "a node outside": (lambda t: t["hypernodes"][0]["spec"]["members"].pop(), "domains", "warn", "gpu-2"),
    "a loose guard": (clear("admission-bindings"), "admission-policy", "fail", "Binding"),
    "a mild guard": (lambda t: [b["spec"].update(validationActions=["Warn"]) for b in t["admission-bindings"]],
                     "admission-policy", "warn", "without Deny"),
    "volcano elsewhere": (volcano("name: extender", "name: extended"), "volcano-configuration", "warn",
                          "does not call"),
    "volcano's text": (volcano("ignorable: true", 'ignorable: "true"'), "volcano-configuration", "fail",
                       "ignorable is 'true', not True"),
    "volcano's verb": (volcano("allocateFuncVerb: allocate", "allocateFuncVerb: assign"), "volcano-configuration",
                       "fail",
                       "'assign', not 'allocate'"),
    "volcano's http": (volcano("https://railwright", "http://railwright"), "volcano-configuration", "fail",
                       "not https://railwright-extender.railwright-system.svc:8713/volcano"),
    "volcano's pools": (volcano("- nvidia.com/mlx5_1\n", "- x/y\n"), "volcano-configuration", "fail",
                        "nvidia.com/mlx5_1"),
    "volcano's segments": (edit_policy("    placement: {preset: topo",
                                    "    nvlinkSegment: 2\n"
                                    "    placement: {preset: topo"),
                           "volcano-configuration", "warn", "fabric roce has nvlinkSegment"),
    "a bare pod": (lambda t: t["pods"].append(installations.pod("bare", {names.FABRIC: "roce"}, {})), "uninjected",
                   "fail",
                   "train/bare"),
    "a label that a CronJob does not pass on": (
        lambda t: t["cronjobs.v1.batch"].append(
            installations.build_workload("CronJob", "nightly", {}, labels={names.FABRIC: "roce"})
        ),
        "workload-keys", "warn", "CronJob train/nightly: LabelNotPassed: "),
    "a renamed fabric": (
        rename_fabric, "workload-keys", "warn",
        "the policy has no fabric 'old', named by Deployment train/dep, Pod train/dep-0: "),
    "a namespace of no fabric": (
        put("namespaces", "train", "trian", "metadata", "labels", names.FABRIC), "workload-keys", "warn",
        "the policy has no fabric 'trian', named by Namespace train: "),
    "a renamed fabric of a namespace": (
        rename_fabric_of_namespace, "workload-keys", "warn",
        "the policy has no fabric 'old', named by Namespace train: "),
    "a namespace that its fabric excludes": (
        exclude_namespace, "workload-keys", "warn",
        "Namespace train: fabric roce may not be used in it: "),
    "a pod of a scheduler that does not ask": (
        place("notebook", "team-scheduler", injected=False), "schedulers", "warn",
        "team-scheduler has placed train/notebook, but the scheduler of these nodes is volcano"),
    "no image": (add_unpulled_preflight, "preflight", "fail",
                 "image site/railwright:1 of init container railwright-preflight cannot be pulled: back-off (pod"),
    "failed preflights": (
        add_preflights(2), "preflight", "fail",
        "failed their preflight: railwright preflight failed: rail1: no device mlx5_1 (pod train/rank-0)"),
    "a refusal": (add_refusal, "refused", "warn", "Job train/llm: rail9 is no rail"),
}  # fmt: skip
