"""What a cluster agrees on, where that is kept, and who decides it."""
