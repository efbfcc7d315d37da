"""The command line: arguments, output and exit codes; the work is done elsewhere."""
