"""The follower's side of replication: copying from leaders."""
