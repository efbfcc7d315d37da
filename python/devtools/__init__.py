"""Tools for tests and benchmarks: Scala compiled on the spot, and quick, slow or counted file systems."""
