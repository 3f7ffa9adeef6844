"""The context of a connection: which listener it came in by, from where, and who it is."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.broker.security.principal import ANONYMOUS, Principal


@dataclass(slots=True)
class Context:
    """One per connection. Only the principal ever changes, when the client proves who it is.

    The local address is the one that the client reached.
    """

    listener: str
    local_host: str
    local_port: int
    client_host: str
    client_port: int
    principal: Principal = ANONYMOUS
    # Whether other brokers connect here; their word about the original client is trusted.
    is_inter_broker: bool = False

    @property
    def client(self) -> str:
        """The client's address, for logs."""
        return f"{self.client_host}:{self.client_port}"
