"""Share groups (KIP-932): many members read the same partitions, and are assigned what to fetch."""
