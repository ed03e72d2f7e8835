"""The data holder: connects one party's private data, decides what may use it, fills the GPU's buffer. Knows no other service."""
