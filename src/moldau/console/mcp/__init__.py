"""The Model Context Protocol over standard input and output: the console's API for assistants."""
