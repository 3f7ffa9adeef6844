"""`moldau demo`: the whole way, live."""
