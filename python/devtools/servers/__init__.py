"""Servers on the loopback, each a process of its own, from what Maven serves: for tests and for the demo."""
