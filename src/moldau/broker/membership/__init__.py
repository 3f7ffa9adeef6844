"""This broker in its cluster: who it is, how it enters and leaves, what it has lost."""
