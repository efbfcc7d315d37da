"""The `binshift/` directory of a checkpoint, read and written without a JVM."""
