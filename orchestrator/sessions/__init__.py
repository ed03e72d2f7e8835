"""Sessions: submission, approvals, the state folded from the journal, and what readers see of it. Knows no HTTP."""
