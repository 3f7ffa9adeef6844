"""Share groups on the command line: reading as a member, and what groups are at."""
