"""A query is rescaled over JDBC, by Spark's Thrift server in the application and Hive's driver."""

import contextlib

import pytest
from py4j.protocol import Py4JJavaError

from devtools.servers.process import free_ports
from local.migrations import finish
from local.queries import count_by_key


@pytest.fixture
def connection(spark, tmp_path):
    """A connection to a Thrift server in the query's application; the server has its own sessions."""
    [port] = free_ports(1)
    session = spark.newSession()
    session.conf.set("hive.server2.thrift.bind.host", "127.0.0.1")
    session.conf.set("hive.server2.thrift.port", str(port))
    thrift = spark._jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
    server = thrift.startWithContext(session._jsparkSession.sqlContext())
    try:
        # All JDBC drivers on the class path are loaded, and Derby's writes a log.
        spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
        driver = spark._jvm.org.apache.hive.jdbc.HiveDriver()
        url = f"jdbc:hive2://127.0.0.1:{port}"
        with contextlib.closing(driver.connect(url, spark._jvm.java.util.Properties())) as connected:
            yield connected
    finally:
        server.stop()


def ask(connection, statement):
    """The rows of a statement, by the names of its columns."""
    with contextlib.closing(connection.createStatement()) as asked:
        found = asked.executeQuery(statement)
        columns = range(1, found.getMetaData().getColumnCount() + 1)
        names = [found.getMetaData().getColumnLabel(c) for c in columns]
        rows = []
        while found.next():
            rows.append(dict(zip(names, [found.getObject(c) for c in columns], strict=True)))
        return rows


def test_a_query_is_planned_for_rescaled_and_followed_over_jdbc(stream, connection):
    run = stream(count_by_key).start(name="billing")
    run.run(0)
    steps = ask(connection, "CALL binshift.system.plan(query => 'billing', partitions => 4)")
    assert [s["partitions"] for s in steps] == [s.partitions for s in run.attach().plan(4).steps]
    rescale = "CALL binshift.system.rescale(query => 'billing', partitions => {}, prepare => false)"
    [submitted] = ask(connection, rescale.format(4))
    assert submitted["migration_id"] == run.attach().migration().id
    with pytest.raises(Py4JJavaError, match="MIGRATION_UNDER_WAY"):
        ask(connection, rescale.format(3))
    finish(run, run.attach().migration(), 1)
    routing = ask(connection, "SELECT * FROM binshift.system.routing WHERE query = 'billing' ORDER BY bin")
    table = run.attach().routing()
    assert table.partitions == 4
    assert [(r["bin"], r["partition"]) for r in routing] == list(enumerate(table.assignment))
    [migration] = ask(connection, "SELECT * FROM binshift.system.migrations WHERE query = 'billing'")
    assert (migration["migration_id"], migration["state"]) == (submitted["migration_id"], "finished")
    batch = {(r.k, r.n, r.total) for r in count_by_key(run.batch()).collect()}
    assert {(*key, *value) for key, value in run.state()} == batch
