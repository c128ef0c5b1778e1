// Cut of pkg/podgrouper/podgrouper/plugins/constants/constants.go of KAI v0.17.0 (github.com/kai-scheduler/KAI-Scheduler)
// Copyright 2025 NVIDIA CORPORATION
// SPDX-License-Identifier: Apache-2.0

	TopologyKey                   = "kai.scheduler/topology"
	TopologyRequiredPlacementKey  = "kai.scheduler/topology-required-placement"
	TopologyPreferredPlacementKey = "kai.scheduler/topology-preferred-placement"
	SegmentSizeKey                       = "kai.scheduler/segment-size"
	SegmentTopologyRequiredPlacementKey  = "kai.scheduler/segment-topology-required-placement"
	SegmentTopologyPreferredPlacementKey = "kai.scheduler/segment-topology-preferred-placement"
	MinMemberOverrideKey = "kai.scheduler/batch-min-member"
