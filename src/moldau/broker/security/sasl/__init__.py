"""SASL: the mechanisms by which clients prove who they are, from the broker's side."""
