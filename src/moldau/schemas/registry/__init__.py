"""The registry's records and the state that they add up to, without I/O.

Everybody who reads the topic `_schemas` comes to the same state: the broker that leads it, the
others, and programs that use it without any registry (`moldau.schemas.SchemaStore`).
"""
