"""What each key of the policy means, in one or two sentences: shown by editors and in the reference.

Owns the words only. Types, defaults and ranges are `model`'s and `schema`'s, and are not repeated here.
"""

from collections.abc import Mapping

# STRUCT.key, as in `schema.RULES`; a key without a row is a failed test.
MEANINGS: Mapping[str, str] = {
    "FabricPolicy.apiVersion": "Always `railwright.io/v1alpha1`.",
    "FabricPolicy.kind": "Always `FabricPolicy`.",
    "FabricPolicy.fabrics": "The fabrics, by the name that users put into the label `railwright.io/fabric`.",
    "FabricPolicy.defaultFabric": (
        "The fabric that the label value `default` means. Absent: the value `default` is refused."
    ),
    "FabricPolicy.accelerators": "Resources that mark a container as a training container.",
    "FabricPolicy.primaryInterface": (
        "The pod's interface on the cluster network. NCCL's bootstrap and control traffic are pinned to it."
    ),
    "FabricPolicy.clusterWideNetworks": (
        "How many networks Multus attaches to every pod before the pod's own; they shift `net1`."
    ),
    "FabricPolicy.nodeShapes": "The hardware by node type. The first shape whose labels are all on a node wins.",
    "FabricPolicy.roles": "Refinements of the rule that a container which requests an accelerator gets the fabric.",
    "Fabric.transport": (
        "How the fabric carries RDMA. `tcp` has no rails and holds NCCL to sockets, for comparison runs; `pvrdma` has "
        "one rail."
    ),
    "Fabric.namespaces": "The namespaces that may use this fabric. Empty: all.",
    "Fabric.rails": "The rails, in order: the order is the rail number everywhere. Needed, except for `tcp`.",
    "Fabric.railsPerPod": (
        "`proportional`: GPUs x rails / `gpusPerNode`, rounded up, and the same rails for a whole gang."
    ),
    "Fabric.gpusPerNode": "GPUs of a whole node; needed for `proportional`.",
    "Fabric.devicesPerRail": "Devices requested for each rail.",
    "Fabric.annotations": "Further annotations for the pods, added where absent: IPAM pools, a default network.",
    "Fabric.mounts": "What is mounted into the chosen containers.",
    "Fabric.security": "What the chosen containers are granted.",
    "Fabric.nccl": "Facts of the fabric, from which NCCL's environment is derived.",
    "Fabric.env": "Literal environment. It beats derived values; the pod's own environment beats both. Quote numbers.",
    "Fabric.forceEnv": "Names of variables whose policy value beats the pod's own, with a warning.",
    "Fabric.preflight": "An init container that checks the fabric before NCCL starts.",
    "Fabric.placement": "Which nodes are good for a pod, and for a gang.",
    "LabelSelector.matchLabels": "Labels that must all be there with these values.",
    "LabelSelector.matchExpressions": "Expressions that must all hold.",
    "SelectorRequirement.key": "The label the expression is about.",
    "SelectorRequirement.operator": "How the label's value is compared.",
    "SelectorRequirement.values": "The values for `In` and `NotIn`; empty for `Exists` and `DoesNotExist`.",
    "Rail.name": "The rail's name, unique in its fabric.",
    "Rail.network": "NetworkAttachmentDefinition as namespace/name. Absent: no second interface (InfiniBand, eRDMA).",
    "Rail.interface": "Name of the interface in the pod. Absent: Multus numbers them, `net1`, `net2` and so on.",
    "Rail.resource": (
        "The device plugin's pool the rail draws on. Absent: the network's annotation "
        "`k8s.v1.cni.cncf.io/resourceName`. Rails may share one."
    ),
    "Rail.device": (
        "RDMA device name, as ibv_devices lists it. `nodeShapes` may override it. Absent for virtual functions, whose "
        "names nobody knows before."
    ),
    "Mounts.devInfiniband": "Mounts the host's /dev/infiniband; only where no device plugin gives the devices.",
    "Mounts.sharedMemory": "Size of a memory volume at /dev/shm, such as `64Gi`. Absent: not touched.",
    "Security.capabilities": "Capabilities added, usually `IPC_LOCK`: RDMA locks memory, and registration fails else.",
    "Security.privileged": "Runs the containers privileged; only where there is no other way to the devices.",
    "Nccl.derive": "`false`: nothing is derived, only `env` counts.",
    "Nccl.delivery": (
        "How the settings reach the ranks: in the container's environment, in the file /etc/nccl.conf, or both. Ranks "
        "that ssh starts always get the file."
    ),
    "Nccl.forbidTcpFallback": "`true`: sets NCCL_NET=IB, so that a wrong fabric fails instead of crawling over TCP.",
    "Nccl.gidIndex": "Index in the RoCE GID table. Absent: NCCL chooses (2.21 and newer).",
    "Nccl.addressRange": "One address prefix over all rails, such as `192.168.0.0/16`; NCCL takes GIDs inside it.",
    "Nccl.addressFamily": "The family of the GIDs. Absent: IPv4.",
    "Nccl.trafficClass": "DSCP x 4: must be what the switches treat as lossless.",
    "Nccl.fifoTrafficClass": "Traffic class of NCCL's small control messages. Absent: as `trafficClass`.",
    "Nccl.serviceLevel": "InfiniBand service level.",
    "Nccl.railOnly": "`true`: rails do not reach each other (NCCL_CROSS_NIC=0).",
    "Nccl.qpsPerConnection": "Queue pairs of a connection; 2 to 8 spread flows over more paths of a routed fabric.",
    "Nccl.adaptiveRouting": "Whether NCCL counts on adaptive routing. Absent: NCCL's choice for the transport.",
    "Nccl.timeout": "4.096 us x 2^N until a packet counts as lost.",
    "Nccl.retryCount": "How often a lost packet is sent again.",
    "Nccl.gdrLevel": "The farthest GPU-NIC distance at which GPUDirect is used.",
    "Nccl.mergeVfs": "`false`: virtual functions of one card stay apart.",
    "Nccl.topologyFile": "Path of an XML topology in the container.",
    "Nccl.debug": "NCCL's log level.",
    "Preflight.enabled": "Adds the init container.",
    "Preflight.image": "Its image.",
    "Preflight.onFailure": "Whether a rail that is not ready stops the pod, or is only written to its log.",
    "Preflight.mtu": "The least MTU of every rail's interface. Absent: not checked.",
    "Placement.rails": (
        "`required`: a node on which a requested rail is not free is refused. `preferred`: it scores lower."
    ),
    "Placement.numa": (
        "Whether rails have to be, or should be, beside the requested GPUs. Unless `ignore`, nodes whose kubelet would "
        "surely reject the pod (TopologyAffinityError) are refused."
    ),
    "Placement.domains": (
        "Node labels of leaf, spine and so on, closest first. Absent: those of `preset`. `{rail}` in a label's name is "
        "each rail's, as in `example.com/leaf-{rail}`, where every rail has its leaf."
    ),
    "Placement.oversubscription": "For each domain the uplink ratio leaving it, such as `[1, 7]`. Absent: 1.",
    "Placement.uplinks": (
        "`rail`: each rail has uplinks of its own, as in rail-optimised fabrics. `bundle`: all rails of a node share "
        "the uplinks of its switch, as at the top of a rack, so that a gang that uses half the rails has twice as much "
        "for each. Absent: `rail` where `domains` has `{rail}`, else `bundle`."
    ),
    "Placement.preset": "Whose node labels `domains` are. `volcano` reads HyperNode objects.",
    "Placement.weights": "What each part of a score counts. Only their ratios matter.",
    "Placement.scale": "Multiplier of the score for Volcano, whose plugins add raw scores.",
    "Weights.locality": "Leaves and the order of ranks.",
    "Weights.rails": "Free rails.",
    "Weights.numa": "Rails beside the GPUs they serve.",
    "Weights.packing": "Filling nodes that are in use already, so that whole ones stay free.",
    "NodeShape.name": "The shape's name, unique.",
    "NodeShape.match": "Node labels that must all be there.",
    "NodeShape.devices": "RDMA device of each rail on this hardware, by the rail's name.",
    "NodeShape.numa": "GPUs and rails of each NUMA node.",
    "NumaNode.node": "Number of the NUMA node.",
    "NumaNode.gpus": "GPUs beside it, by index.",
    "NumaNode.rails": "Rails beside it, by name.",
    "Roles.launchers": "What a launcher, such as an MPIJob's, gets.",
    "Roles.volcanoTasks": "Whether pods of a Volcano task get the fabric, by the task's name.",
}
