"""Access to the console: who asks, and what keeps other people's pages out."""
