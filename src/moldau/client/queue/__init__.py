"""Queues: topics whose messages are worked off one by one, by the members of a share group."""
