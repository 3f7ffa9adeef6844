"""How commands show things: tables and text for people, JSON for programs."""
