"""`gput bench travel`: the conventional way and the travelling one, in real processes over links that are paced and counted."""
