"""Training programs: building, loading, training. The only room besides hbm and compute that knows tensors."""
