"""A query is rescaled over JDBC: Spark's Thrift server runs in the application, and Spark's client asks it."""

import csv
import socket
import subprocess

import pytest

from jvms import SPARK_HOME
from local.queries import count_by_key

pytestmark = pytest.mark.matrix


@pytest.fixture
def address(spark):
    """That of a Thrift server in the application of the query, with sessions of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    session = spark.newSession()
    session.conf.set("hive.server2.thrift.bind.host", "127.0.0.1")
    session.conf.set("hive.server2.thrift.port", str(port))
    thrift = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server = thrift.startWithContext(session._jsparkSession.sqlContext())
    yield f"jdbc:hive2://127.0.0.1:{port}"
    server.stop()


def beeline(address, *statements, code=0):
    """The rows that the last statement returns, or what is said of a failure."""
    arguments = ["-u", address, "--silent=true", "--outputformat=csv2"]
    arguments += [a for s in statements for a in ("-e", s)]
    done = subprocess.run(
        [str(SPARK_HOME / "bin/beeline"), *arguments], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        return done.stderr
    rows = [dict(r) for r in csv.DictReader(done.stdout.splitlines())]
    # Lines that are no rows are the client's own.
    found = [r for r in rows if None not in r.values()]
    assert found, done.stdout
    return found


def test_a_query_is_planned_for_rescaled_and_followed_over_jdbc(stream, address):
    run = stream(count_by_key).start(name="billing")
    run.run(0)
    steps = beeline(address, "CALL binshift.system.plan(query => 'billing', partitions => 4)")
    assert [int(s["partitions"]) for s in steps] == [s.partitions for s in run.attach().plan(4).steps]
    [submitted] = beeline(
        address, "CALL binshift.system.rescale(query => 'billing', partitions => 4, prepare => false)"
    )
    assert submitted["migration_id"] == run.attach().migration().id
    refused = beeline(address, "CALL binshift.system.rescale(query => 'billing', partitions => 3)", code=1)
    assert "MIGRATION_UNDER_WAY" in refused or "is under way" in refused
    run.run(1, 2, 3)
    assert run.attach().routing().partitions == 4
    [facts] = beeline(address, "SELECT epoch, partitions FROM binshift.system.queries WHERE query = 'billing'")
    assert facts == {"epoch": "3", "partitions": "4"}
    [migration] = beeline(
        address, "SELECT migration_id, state FROM binshift.system.migrations WHERE query = 'billing'"
    )
    assert migration == {"migration_id": submitted["migration_id"], "state": "finished"}
    keys = "SELECT sum(keys) AS keys FROM binshift.system.stats WHERE query = 'billing'"
    assert beeline(address, keys) == [{"keys": str(len(run.state()))}]
