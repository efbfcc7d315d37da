"""Random queries have the results of Spark's own provider, while random bins move to random partitions."""

import os

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

from local.compositions import make_tables
from local.moving import gives_what_spark_gives
from local.planned import EPOCHS, NEEDS_PLANS, Planned
from local.random_queries import operators_of, random_query

#: Seeds of queries that Spark can run, with different operators, modes, sinks and settings.
CHOSEN = (1, 2, 3, 4, 5)

#: Blocks of the matrix, and seeds in each; a part of the matrix runs some of the blocks.
BLOCKS, SEEDS = 500, 2
FIRST = 1000
#: The same for plans that are not run.
PLANS, SEEDS_PLANNED = 100, 20


@pytest.fixture(scope="module")
def tables(spark):
    make_tables(spark)


def run_all(stream, seeds) -> int:
    """Runs queries of these seeds; returns how many Spark can run. Fails at the end with those that differ."""
    ran, wrong = 0, {}
    for seed in seeds:
        composition, case = random_query(seed)
        try:
            done = gives_what_spark_gives(stream, case, seed)
            outcome = "as Spark" if done else "refused by Spark"
            ran += done
        except Exception as error:
            outcome = wrong[seed] = f"WRONG, {type(error).__name__}: {error}"
        text = f"{operators_of(composition)} operators, {case.mode}, {case.sink}, {case.conf}, {composition}"
        print(f"seed {seed}: {text}: {outcome}", flush=True)  # noqa: T201
    assert not wrong
    return ran


@pytest.mark.long
@pytest.mark.parametrize("seed", CHOSEN)
def test_a_random_query_gives_what_spark_gives(stream, tables, seed):
    assert run_all(stream, [seed]) == 1


@pytest.mark.long
@NEEDS_PLANS
@pytest.mark.parametrize("block", [0, *(pytest.param(b, marks=pytest.mark.matrix) for b in range(1, PLANS))])
def test_all_rows_of_random_queries_follow_the_table_that_have_to(spark, tables, tmp_path, block):
    planned = 0
    for seed in range(block * SEEDS_PLANNED, (block + 1) * SEEDS_PLANNED):
        composition, case = random_query(seed)
        for partitions in EPOCHS:
            try:
                followed, wrong = Planned(spark, tmp_path, case).found(partitions)
            except (AnalysisException, IllegalArgumentException) as error:
                # Spark has no plan for the query, and says so without binshift, too.
                with pytest.raises(type(error)):
                    Planned(spark, tmp_path, case).found(partitions, is_routed=False)
                break
            assert wrong == [], "\n".join([f"seed {seed}: {composition}", *wrong])
            assert not followed.startswith("refused"), f"seed {seed}: {composition}: {followed}"
            planned += 1
    assert planned > SEEDS_PLANNED


@pytest.mark.matrix
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_queries_give_what_spark_gives(stream, tables, block):
    first = FIRST + block * SEEDS
    assert run_all(stream, range(first, first + SEEDS)) > 0


@pytest.mark.matrix
@pytest.mark.timeout(0)
@pytest.mark.skipif("BINSHIFT_SEEDS" not in os.environ, reason="BINSHIFT_SEEDS=first:last runs so many")
def test_chosen_seeds_give_what_spark_gives(stream, tables):
    first, last = map(int, os.environ["BINSHIFT_SEEDS"].split(":"))
    run_all(stream, range(first, last))
