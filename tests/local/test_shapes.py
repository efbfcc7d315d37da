"""In each shape of plan exactly those rows follow the routing table that have to, or the query is refused.

tests/jvm/spark-4.3/RowPlacement.scala derives from the plan alone where each row is. It shares no code with
the routing.
"""

import re

import pytest

from local.compositions import make_tables
from local.moving import gives_what_spark_gives
from local.planned import EPOCHS, NEEDS_PLANS, Planned
from local.shapes import SHAPES
from local.stars import make_dimensions


@pytest.fixture(scope="module")
def tables(spark):
    make_tables(spark)
    make_dimensions(spark)


@NEEDS_PLANS
@pytest.mark.parametrize("name", SHAPES)
def test_all_rows_follow_the_table_that_have_to(spark, tables, tmp_path, name):
    shape = SHAPES[name]
    plan = Planned(spark, tmp_path, shape)
    for partitions in EPOCHS:
        followed, wrong = plan.found(partitions)
        assert wrong == [], "\n".join(wrong)
        if shape.refused and partitions == 2:
            assert re.match(f"refused: .*{shape.refused}", followed), followed
        else:
            assert re.match("followed: [1-9]" if shape.follows else "followed: 0", followed), followed
    # Spark's own plan of the query is wrong for a table, and the check finds that.
    _, wrong = plan.found(5, is_routed=False)
    assert bool(wrong) == shape.follows


@pytest.mark.matrix
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if not shape.refused])
def test_a_shape_gives_what_spark_gives_while_its_bins_move(stream, tables, name):
    assert gives_what_spark_gives(stream, SHAPES[name])
