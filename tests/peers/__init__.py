"""The same training by ours and by federated-learning frameworks, measured: `make bench-peers`. No part of the product."""
