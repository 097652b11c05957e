"""Waiting for what another thread or process brings about."""

import time


def until(holds, seconds=10.0):
    """Wait until something holds; return what it is."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"it does not come to hold within {seconds} s")
        time.sleep(0.01)
    return found


def seconds_until(holds, seconds=10.0):
    """Wait until something holds; return how long it took."""
    started = time.monotonic()
    until(holds, seconds)
    return time.monotonic() - started
