"""Cases of coordinators: groups of all kinds, offsets, transactions."""
