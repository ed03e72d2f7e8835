"""Evidence, for people: files read, judged and shown. Knows the verifiers of `shared`, no service."""
