"""Views: tables and text for people, JSON for programs."""
