"""Pages that are made from code, and their maker."""
