"""Plans which bins move where, and in which steps. Pure: no module here does I/O or knows Spark."""
