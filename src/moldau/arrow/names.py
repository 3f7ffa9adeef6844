"""Names of columns."""

HEADERS = "headers"
