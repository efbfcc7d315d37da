"""What tests and benchmarks share: Scala compiled on the spot, and quick, slow or counted file systems."""
