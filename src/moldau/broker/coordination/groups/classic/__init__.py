"""Classic groups: members join, a leader among them assigns, all learn their share (JoinGroup)."""
