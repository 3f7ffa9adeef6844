"""Dead letters: read from their topics, and moved back to where they came from, once each."""
