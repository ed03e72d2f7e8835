"""HOSTILE CODE, for the attack tour only: attackers that run against the real services. Nothing of the product imports this room.

Every attacker stands outside of the services: a relay on a link, the platform's own key in the wrong hands, or a service's process that
was patched at its start by a launcher of this room. No service has a switch that makes it misbehave.
"""
