"""APIs of consumer groups: membership, committed offsets, administration."""
