"""The partitions that a broker holds: their logs, roles, flushing, repairs."""
