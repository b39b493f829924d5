"""A client's stream to the server: its greeting, its last word, and why a connection failed."""
