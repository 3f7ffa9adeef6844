"""Who asks, and what keeps other people's pages out."""
