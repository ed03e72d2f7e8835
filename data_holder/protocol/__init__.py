"""The holder's own view of the protocol: its visit's table and what an offer must satisfy. Pure: no clock, wire, storage."""
