"""What is done with state that was read: compare, export, count, check."""
