"""Devices of Dynamic Resource Allocation: what ResourceSlices offer, and what ResourceClaims hold."""
