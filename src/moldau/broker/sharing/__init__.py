"""Sharing (KIP-932): records of partitions that this broker leads, given to the members of share
groups one by one. Which members a group has is up to its coordinator, in `coordination`."""
