"""Tools for state: compare, export, count, check."""
