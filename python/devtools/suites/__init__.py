"""Running Spark's own suites on binshift's provider; see scripts/spark_suites.py."""
