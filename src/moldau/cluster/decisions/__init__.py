"""Decisions on the cluster's state: functions from values to changes, without I/O."""
