"""A client of Spark Connect that starts a query and a migration, and is killed."""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.connect.session import SparkSession as ConnectSession

import binshift
from local.counting import Counting

address, root = sys.argv[1:]
builder: Any = ConnectSession.builder
session = binshift.configure(builder.remote(address), bins=64).create()
counting = Counting(session, Path(root)).start()
counting.run()
migration = binshift.attach(counting.query).rescale(4, prepare=False)
sys.stdout.write(f"{counting.name} {migration.id}\n")
sys.stdout.flush()
os._exit(7)
