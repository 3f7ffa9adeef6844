"""The leader's side of replication: serving followers, and who of them is in sync."""
