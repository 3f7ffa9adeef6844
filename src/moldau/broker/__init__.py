"""One broker: connections, handlers, partitions, background upkeep."""
