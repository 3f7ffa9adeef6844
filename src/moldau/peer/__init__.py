"""Connections to a broker, for programs: the protocol over a socket, blocking or on asyncio.

`dialogue` is the protocol without I/O and serves both faces: `connection` blocks
(tasks of Spark), `aio` runs on an event loop. `cluster` finds leaders and tries again.
"""
