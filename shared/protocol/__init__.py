"""The protocol as tables and proofs: who may move what, when. Pure: knows no clock, chance, wire or storage."""
