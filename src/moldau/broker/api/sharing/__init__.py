"""APIs of share groups (KIP-932): fetching, acknowledging, and the states of shared partitions."""
