"""One visit, step by step (design 4.3): each module one step, each step one fact. Knows no HTTP route."""
