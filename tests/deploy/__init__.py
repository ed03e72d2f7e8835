"""What is shipped for running the system: dashboard, compose files, Kubernetes manifests."""
