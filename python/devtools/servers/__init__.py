"""Servers on the loopback, each a process of its own, from Maven's artifacts. For tests and for the demo."""
