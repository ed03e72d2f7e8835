"""The session's transparency log: leaves, tree, signed heads, receipts. Knows no HTTP."""
