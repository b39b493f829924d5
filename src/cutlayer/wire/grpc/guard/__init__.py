"""Who may hold a connection or a stream: credentials at the door, and few places for those without."""
