"""Security for both ends of a connection: TLS contexts, JAAS strings, SASL's messages.

No sockets here, and no decisions about who may do what.
"""
