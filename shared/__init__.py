"""The language that the three services speak. Knows no service; imports none of them."""
