"""Descriptions of the policy's keys, shown by editors and in docs/policy.md.

Types, defaults and ranges are in `model` and `schema`, and the reference shows them next to the description.
"""

from collections.abc import Mapping

# STRUCT.key, as in `schema.RULES`. A test checks that each key has a row.
DESCRIPTIONS: Mapping[str, str] = {
    "FabricPolicy.apiVersion": "Always `railwright.io/v1alpha1`.",
    "FabricPolicy.kind": "Always `FabricPolicy`.",
    "FabricPolicy.fabrics": "Fabrics by name. Users set the name in the label `railwright.io/fabric`.",
    "FabricPolicy.defaultFabric": (
        "Fabric that the label value `default` selects. If unset, pods with the value `default` are rejected."
    ),
    "FabricPolicy.accelerators": "Resources of accelerators. A container that requests one is a training container.",
    "FabricPolicy.primaryInterface": (
        "Interface of the pod on the cluster network. NCCL's bootstrap and control traffic use it."
    ),
    "FabricPolicy.clusterWideNetworks": (
        "Number of networks that Multus attaches to every pod before the pod's own. The names `netN` of the pod's own "
        "networks count from there."
    ),
    "FabricPolicy.nodeShapes": "Hardware of each node type. A node has the first shape with labels that all match.",
    "FabricPolicy.roles": "Exceptions to the rule that a container gets the fabric if it requests an accelerator.",
    "Fabric.transport": (
        "RDMA transport of the fabric. `tcp` has no rails and restricts NCCL to sockets, for comparison runs. `pvrdma` "
        "has one rail."
    ),
    "Fabric.namespaces": "Namespaces that may use this fabric. If empty, all may.",
    "Fabric.rails": "Rails of the fabric. The position is the rail's number. Required except for `tcp`.",
    "Fabric.claims": (
        "The rails come as ResourceClaims (Dynamic Resource Allocation). If unset, they are extended resources."
    ),
    "Fabric.railsPerPod": (
        "Number of rails that a pod gets. `proportional`: its GPUs x rails / `gpusPerNode`, rounded up. All pods of a "
        "gang get the same rails."
    ),
    "Fabric.gpusPerNode": "Number of GPUs of a node. Required for `proportional`, and if claims pair GPUs with rails.",
    "Fabric.devicesPerRail": "Number of devices requested for each rail.",
    "Fabric.annotations": "Annotations added to the pods that do not have them, such as IPAM pools.",
    "Fabric.mounts": "Mounts added to the target containers.",
    "Fabric.security": "Privileges added to the target containers.",
    "Fabric.nccl": "Properties of the fabric. NCCL's environment is derived from them.",
    "Fabric.env": (
        "Environment variables. They override derived values; the pod's own values override both. Quote numbers."
    ),
    "Fabric.forceEnv": "Variables of `env` that override the pod's own values, with a warning.",
    "Fabric.preflight": "Init container that checks the fabric before NCCL starts.",
    "Fabric.placement": "Rules for choosing the nodes of pods and gangs.",
    "LabelSelector.matchLabels": "Labels that must all be present with these values.",
    "LabelSelector.matchExpressions": "Expressions that must all be true.",
    "SelectorRequirement.key": "Key of the label.",
    "SelectorRequirement.operator": "Comparison of the label's value with `values`.",
    "SelectorRequirement.values": "Values for `In` and `NotIn`. Must be empty for `Exists` and `DoesNotExist`.",
    "Rail.name": "Name of the rail, unique in its fabric.",
    "Rail.network": (
        "NetworkAttachmentDefinition as namespace/name. If unset, the rail adds no interface (InfiniBand, eRDMA)."
    ),
    "Rail.interface": "Name of the interface in the pod. If unset, Multus names it `net1`, `net2` and so on.",
    "Rail.resource": (
        "Extended resource of the device plugin. If unset, the annotation `k8s.v1.cni.cncf.io/resourceName` of the "
        "network names it. Rails may share a resource."
    ),
    "Rail.device": (
        "Name of the RDMA device, as ibv_devices lists it. `nodeShapes` may override it. Leave unset for SR-IOV "
        "virtual functions: their names are assigned at run time."
    ),
    "Rail.claim": (
        "What identifies the rail's devices, if the rails come as claims. If unset, the attribute `railAttribute` of "
        "`claims` with `device` as value."
    ),
    "RailClaim.deviceName": (
        "Name of the device in its ResourceSlice, such as `pci-0000-20-1b-0`. Only for dranet, whose names have the "
        "PCI address. Claims cannot select by other names."
    ),
    "RailClaim.pciAddress": "PCI address of the device.",
    "RailClaim.value": "Value of the attribute `railAttribute`.",
    "RailClaim.expression": (
        "CEL expression that is true for the rail's devices only. Test each attribute with has(): devices may lack it."
    ),
    "Claims.deviceClass": "DeviceClass of the NICs.",
    "Claims.driver": (
        "Driver of the NICs. It sets the driver's name, the default of `railAttribute`, and the form of the driver's "
        "configuration. `dranet`: kubernetes-sigs/dranet, also GKE's managed one. `sriov`, `sriov-multus`: "
        "dra-driver-sriov in its modes STANDALONE and MULTUS. `other`: described by `driverName` and `railAttribute`."
    ),
    "Claims.driverName": "Name of the driver in its ResourceSlices. Required for `other`, otherwise known.",
    "Claims.railAttribute": (
        "Device attribute whose value identifies a rail. If unset, `dra.net/rdmaDevice` for dranet and "
        "`k8s.cni.cncf.io/resourceName` for dra-driver-sriov. dranet 1.4 and older publish `dra.net/rdmaDevice` only "
        "for devices without a network interface. Drivers withdraw `dra.net/ifName` and addresses while a pod holds "
        "the device."
    ),
    "Claims.accelerators": (
        "The GPUs come in the same claims, and are removed from the requests of containers. They count as the first "
        "of `accelerators`. If unset, they are extended resources."
    ),
    "Claims.pairBy": (
        "What pairs a GPU with its NIC: the attribute `resource.kubernetes.io/pcieRoot` or "
        "`resource.kubernetes.io/numaNode` that both have, another attribute that both have, "
        "`acceleratorsOfRail` of `nodeShapes` (`nodeShape`), or nothing (`none`). Needs `accelerators`."
    ),
    "Claims.parameters": (
        "Configuration of the driver for each rail, beside the interface's name. For dranet, keys of `interface`, "
        "such as `mtu`, or whole sections, such as `ethtool`."
    ),
    "Claims.gangRails": (
        "`same`: all pods of a gang get one set of rails, and wait until it is free. `any`: each pod may get another."
    ),
    "FabricPolicy.mode": (
        "`audit`: pods and templates are neither changed nor rejected. Warnings, Events, metrics and the injection "
        "record say what would have been done."
    ),
    "Fabric.mode": "`enforce` or `audit` for this fabric. If unset, that of the policy.",
    "ClaimedAccelerators.deviceClass": "DeviceClass of the GPUs.",
    "Mounts.devInfiniband": "Mounts the host's /dev/infiniband. Needed only if no device plugin provides the devices.",
    "Mounts.sharedMemory": "Size of a memory volume at /dev/shm, such as `64Gi`. If unset, /dev/shm is not changed.",
    "Security.capabilities": (
        "Capabilities to add, usually `IPC_LOCK`: RDMA pins memory, and without it memory registration fails."
    ),
    "Security.privileged": "Runs the containers privileged. Needed only if the devices are not accessible otherwise.",
    "Nccl.derive": "`false`: no variables are derived; only `env` is set.",
    "Nccl.delivery": (
        "Where the ranks find the settings: the container's environment, the file /etc/nccl.conf, or both. Ranks "
        "started by ssh always get the file."
    ),
    "Nccl.forbidTcpFallback": (
        "`true`: sets NCCL_NET=IB, so that a job on a broken fabric fails instead of running slowly over TCP."
    ),
    "Nccl.gidIndex": "Index in the RoCE GID table. If unset, NCCL chooses (2.21 and newer).",
    "Nccl.addressRange": (
        "Address prefix that covers all rails, such as `192.168.0.0/16`. NCCL uses GIDs with addresses in it."
    ),
    "Nccl.addressRangeIncludesHost": (
        "`true`: the nodes' own addresses on the rails are in `addressRange`, so that pods on the host network get it "
        "too. Otherwise NCCL would find no GID there."
    ),
    "Nccl.addressFamily": "Address family of the GIDs. If unset, IPv4.",
    "Nccl.trafficClass": "DSCP x 4 of the class that the switches treat as lossless.",
    "Nccl.fifoTrafficClass": "Traffic class of NCCL's small control messages. If unset, `trafficClass`.",
    "Nccl.serviceLevel": "InfiniBand service level.",
    "Nccl.railOnly": "`true`: different rails cannot reach each other (NCCL_CROSS_NIC=0).",
    "Nccl.qpsPerConnection": (
        "Queue pairs for each connection. 2 to 8 spread flows over more paths of a routed fabric."
    ),
    "Nccl.adaptiveRouting": "Whether the fabric routes adaptively. If unset, NCCL decides by the transport.",
    "Nccl.timeout": "N of the time 4.096 us x 2^N after which a packet is considered lost.",
    "Nccl.retryCount": "Number of times that a lost packet is sent again.",
    "Nccl.gdrLevel": "Largest distance between GPU and NIC for GPUDirect.",
    "Nccl.mergeVfs": "`false`: NCCL does not merge virtual functions of one card into one NIC.",
    "Nccl.topologyFile": "Path of an XML topology file in the container.",
    "Nccl.debug": "Log level of NCCL.",
    "Preflight.enabled": "Adds the init container.",
    "Preflight.image": "Image of the init container.",
    "Preflight.onFailure": "`fail`: a rail that is not ready stops the pod. `warn`: it is only logged.",
    "Preflight.mtu": "Smallest allowed MTU of the rails' interfaces, in bytes. If unset, it is not checked.",
    "Placement.rails": (
        "`required`: nodes without a free device for each requested rail are filtered out. `preferred`: they score "
        "lower."
    ),
    "Placement.numa": (
        "Whether rails must or should be on the NUMA nodes of the requested GPUs. Unless it is `ignore`, nodes are "
        "filtered out if their kubelet would certainly reject the pod (TopologyAffinityError)."
    ),
    "Placement.domains": (
        "Keys of the node labels that name leaf, spine and so on, closest first. If unset, those of `preset`. `{rail}` "
        "in a key stands for the name of each rail, as in `example.com/leaf-{rail}`, if each rail has its own leaf."
    ),
    "Placement.oversubscription": (
        "Ratio of downlink to uplink bandwidth of each domain, closest first, such as `[1, 7]`. If unset, 1."
    ),
    "Placement.uplinks": (
        "`rail`: each rail has its own uplinks, as in rail-optimized fabrics. `bundle`: all rails of a node share the "
        "uplinks of their switch, as with top-of-rack switches. A gang that uses half the rails then has twice the "
        "bandwidth for each. If unset, `rail` if `domains` contains `{rail}`, otherwise `bundle`."
    ),
    "Placement.preset": "Well-known node labels to use as `domains`. `volcano` reads HyperNode objects instead.",
    "Placement.weights": "Weight of each part of a node's score. Only the ratios matter.",
    "Placement.scale": "Factor of the score for Volcano, which adds the scores of its plugins without normalizing.",
    "Weights.locality": "Weight of few leaves and neighbouring ranks on the same leaf.",
    "Weights.rails": "Weight of free rails.",
    "Weights.numa": "Weight of rails on the NUMA nodes of their GPUs.",
    "Weights.packing": "Weight of filling partly used nodes first, so that idle nodes remain.",
    "NodeShape.name": "Name of the shape, unique.",
    "NodeShape.match": "Node labels that must all be present with these values.",
    "NodeShape.devices": "RDMA device of each rail on this hardware, by rail name.",
    "NodeShape.acceleratorsOfRail": (
        "PCI bus IDs of the GPUs beside each rail, by rail name, for `claims.pairBy: nodeShape`."
    ),
    "NodeShape.numa": "GPUs and rails of each NUMA node.",
    "NumaNode.node": "Number of the NUMA node.",
    "NumaNode.gpus": "Indexes of the GPUs on the NUMA node.",
    "NumaNode.rails": "Names of the rails on the NUMA node.",
    "Roles.launchers": "Whether launchers, such as that of an MPIJob, get the fabric.",
    "Roles.volcanoTasks": "Whether the pods of a Volcano task get the fabric, by task name.",
}
