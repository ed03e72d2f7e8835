"""Where Python looks for cycles of objects: not among those that a service began with. Knows no service.

What a service has imported and built stays as long as it runs, some hundred thousand objects. Once in a while Python goes over all that
lives, to find what only holds itself: 90 ms here, in the middle of whatever is asked then, and three holders of a session have it each.
"""

from __future__ import annotations

import gc


def leave_out_what_is_there() -> None:
    """Drop what is garbage by now, and never look at the rest again. What comes later is looked at as before."""
    gc.collect()
    gc.freeze()
