"""The console over HTTP: on a server of its own, and on the HTTP side of a broker."""
