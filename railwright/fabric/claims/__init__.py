"""Dynamic Resource Allocation: the devices that ResourceSlices offer and ResourceClaims hold."""
