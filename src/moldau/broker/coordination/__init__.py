"""Coordinators: each a shard of an internal compacted topic, loaded on leadership, journalled."""
