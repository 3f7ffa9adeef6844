"""Storage: one partition's log as segments of record batches, and the folder that holds them all.

Bottom up: `files` and `segments`, then `log` with its parts and what is done to it, `compaction`,
and the `store` on top. Nothing here knows of sockets, replicas or leaders.
"""
