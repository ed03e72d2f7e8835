"""What runs sessions: one task a session, one session a GPU, lives opened and recovered. Knows no HTTP route."""
