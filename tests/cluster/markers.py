"""Has the driver read a block while an executor changes it, with disks encrypted."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import session

if __name__ == "__main__":
    root, jar = Path(sys.argv[1]), sys.argv[2]
    encrypted = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of a test",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }
    spark = session("local-cluster[1,1,1024]", **encrypted, **{"spark.jars": jar})
    markers = spark._jvm.org.apache.spark.sql.execution.streaming.state.binshift.TestMarkers
    (root / "markers.json").write_text(markers.readWhileItChanges(spark.sparkContext._jsc.sc(), 3000))
    spark.stop()
