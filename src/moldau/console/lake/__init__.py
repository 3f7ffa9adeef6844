"""Lake tables on this machine, as their own libraries read them."""
