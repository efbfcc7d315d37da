"""In each shape of plan, all rows that have to follow the routing table do, and nothing else; or it is refused.

tests/jvm/RowPlacement.scala derives from the plan alone where each row is, and shares no code with what routes.
"""

import pytest

from binshift.session import PROVIDER, PROVIDER_KEY
from harness import SCHEMA
from local.compositions import make_tables
from local.moving import gives_what_spark_gives
from local.shapes import SHAPES, Shape
from local.stars import make_dimensions

#: Numbers of partitions, and epochs at which a query has so many; initial states are read in the first.
EPOCHS = {2: 0, 5: 6, 1: 9}


@pytest.fixture(scope="module")
def tables(spark):
    make_tables(spark)
    make_dimensions(spark)


@pytest.fixture(scope="module")
def planned(spark, tables, tmp_path_factory):
    """The query of a shape over an empty stream."""
    folder = str(tmp_path_factory.mktemp("input"))

    def plan(shape: Shape):
        session = spark.newSession()
        for key, value in ({PROVIDER_KEY: PROVIDER} | dict(shape.conf)).items():
            session.conf.set(key, value)
        return shape.build(session.readStream.schema(SCHEMA).json(folder))

    return plan


def found(df, shape, partitions, is_routed=True):
    """The first line says how many operators there are whose rows have to follow; each other what is wrong."""
    plans = df.sparkSession._jvm.org.apache.spark.sql.binshift.TestPlans
    return plans.look(df._jdf, shape.mode, partitions, EPOCHS[partitions], is_routed).split("\n")


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if not shape.refused])
def test_all_rows_follow_the_table_that_have_to(planned, name):
    shape = SHAPES[name]
    df = planned(shape)
    for partitions in EPOCHS:
        followed, *wrong = found(df, shape, partitions)
        assert wrong == [], "\n".join(wrong)
        assert (followed != "followed: 0") == shape.follows
    # What Spark itself makes of the query is wrong for a table, and is seen to be.
    assert (len(found(df, shape, 5, is_routed=False)) > 1) == shape.follows


@pytest.mark.matrix
@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_gives_what_spark_gives_while_its_bins_move(stream, tables, name):
    assert gives_what_spark_gives(stream, SHAPES[name])
