"""The demos: what each trains, on whose data, and how its result is judged. Knows no process, no service and no terminal."""
