"""The state that a cluster agrees on, and the changes to it, as values."""
