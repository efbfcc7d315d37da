"""Runs streaming queries at a set rate, measures them, keeps what was measured and draws it."""
