"""Outputs: how a connection sends, by a plain socket or by a transport."""
