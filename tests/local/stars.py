"""Star schemas like TPC-DS's: a stream of sales with item, store and day, and a table for each of these."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ITEMS, STORES, DAYS = 7, 4, 12


def make_dimensions(spark: SparkSession) -> None:
    """Tables with different partitionings; some sales have no item, and one store has two rows."""
    items = spark.range(1, ITEMS).selectExpr("id AS item", "id % 3 AS category", "id % 2 = 0 AS is_new")
    stores = spark.range(STORES).union(spark.range(1)).selectExpr("id AS store", "id % 2 AS region")
    days = spark.range(DAYS).selectExpr("id AS day", "id DIV 3 AS week")
    for name, key, table in (("items", "item", items), ("stores", "store", stores), ("days", "day", days)):
        table.localCheckpoint().createOrReplaceGlobalTempView(name)
        table.repartition(2, key).cache().createOrReplaceGlobalTempView(f"{name}_cached")
        table.write.mode("overwrite").bucketBy(2, key).sortBy(key).saveAsTable(f"binshift_{name}")
        spark.table(f"binshift_{name}").createOrReplaceGlobalTempView(f"{name}_bucketed")
    categories = spark.range(3).selectExpr("id AS category", "id * 10 AS section")
    categories.localCheckpoint().createOrReplaceGlobalTempView("categories")


def sales(df: DataFrame) -> DataFrame:
    """Sales from (k, v, t): customer, item, store, day, price and time."""
    late = df.withWatermark("t", "1 minute")
    return late.select(
        "k",
        (F.col("v") % ITEMS).alias("item"),
        (F.col("v") % STORES).alias("store"),
        F.minute("t").cast("long").alias("day"),
        F.col("v").alias("price"),
        "t",
    )


def dimension(df: DataFrame, name: str, hint: str) -> DataFrame:
    return df.sparkSession.table(f"global_temp.{name}").hint(hint)


def by_all(hint: str, kind: str = "", how: str = "inner") -> Callable[[DataFrame], DataFrame]:
    """Joins all tables, and keeps sums by their attributes."""

    def build(df: DataFrame) -> DataFrame:
        wide = sales(df)
        for name, key in (("items", "item"), ("stores", "store"), ("days", "day")):
            wide = wide.join(dimension(df, name + kind, hint), key, how)
        return wide.groupBy("category", "region", "week").agg(F.sum("price").alias("price"))

    return build


def before_and_after(hint: str, kind: str = "") -> Callable[[DataFrame], DataFrame]:
    """Joins items, keeps sums by store, and then joins stores."""

    def build(df: DataFrame) -> DataFrame:
        of_items = sales(df).join(dimension(df, "items" + kind, hint), "item")
        sums = of_items.groupBy("store", "category").agg(F.sum("price").alias("price"))
        return sums.join(dimension(df, "stores" + kind, hint), "store", "left")

    return build


def twice_aggregated(hint: str, kind: str = "") -> Callable[[DataFrame], DataFrame]:
    """Sums by item, without categories in the state, and then by category."""

    def build(df: DataFrame) -> DataFrame:
        window = F.window("t", "1 minute")
        by_item = sales(df).groupBy(window, "item").agg(F.sum("price").alias("price"))
        timed = by_item.select("item", "price", F.window_time("window").alias("t"))
        wide = timed.join(dimension(df, "items" + kind, hint), "item")
        return wide.groupBy(F.window("t", "2 minutes"), "category").agg(F.sum("price").alias("price"))

    return build


def of_one_key(hint: str, kind: str = "", how: str = "inner") -> Callable[[DataFrame], DataFrame]:
    """Two operators by item and a join by item between them; they share one exchange."""

    def build(df: DataFrame) -> DataFrame:
        once = sales(df).select("item", "t").dropDuplicates(["item", "t"])
        wide = once.join(dimension(df, "items" + kind, hint), "item", how)
        window = F.window("t", "2 minutes")
        return wide.groupBy("item", window).agg(F.count("*").alias("n"))

    return build


def snowflake(df: DataFrame) -> DataFrame:
    """A table is joined with another table, and then with the stream."""
    items = dimension(df, "items_cached", "merge").join(dimension(df, "categories", "merge"), "category")
    wide = sales(df).join(items.hint("shuffle_hash"), "item")
    return wide.groupBy("section").agg(F.sum("price").alias("price"))


def with_aggregated_dimension(df: DataFrame) -> DataFrame:
    items = dimension(df, "items_bucketed", "merge").groupBy("category").agg(F.max("item").alias("item"))
    counted = sales(df).groupBy("item").agg(F.sum("price").alias("price"))
    return counted.join(items.hint("merge"), "item", "left")


def sold_and_returned(how: str, hint: str) -> Callable[[DataFrame], DataFrame]:
    """Joins two streams of facts by customer and item, and then their tables."""

    def build(df: DataFrame) -> DataFrame:
        sold = sales(df)
        back = sales(df.where("v % 2 = 0")).select(
            F.col("k").alias("rk"),
            F.col("item").alias("ritem"),
            F.col("t").alias("rt"),
            F.col("price").alias("paid"),
        )
        near = "k = rk AND item = ritem AND rt >= t AND rt <= t + INTERVAL 2 MINUTES"
        pairs = sold.join(back, F.expr(near), how)
        wide = pairs.join(dimension(df, "items", hint), "item", "left")
        wide = wide.join(dimension(df, "stores_cached", hint), "store")
        return wide.select("k", "item", "category", "region", "price", "paid")

    return build


def chosen(df: DataFrame) -> DataFrame:
    """A selection by subqueries, as in queries of TPC-DS."""
    sales(df).createOrReplaceTempView("sales")
    return df.sparkSession.sql(
        """
        SELECT store, sum(price) AS price FROM sales
        WHERE item IN (SELECT item FROM global_temp.items_bucketed WHERE is_new)
          AND EXISTS (SELECT 1 FROM global_temp.days d WHERE d.day = sales.day)
          AND price > (SELECT min(store) FROM global_temp.stores_cached)
        GROUP BY store
        """
    )


def rolled_up(df: DataFrame) -> DataFrame:
    wide = (
        sales(df).join(dimension(df, "items", "merge"), "item").join(dimension(df, "stores", "merge"), "store")
    )
    return wide.rollup("category", "region").agg(F.sum("price").alias("price"), F.count("*").alias("n"))


def channels(df: DataFrame) -> DataFrame:
    """A union of channels, each with its own joins, as in TPC-DS's queries over all channels."""
    shop = sales(df).join(dimension(df, "stores_cached", "merge"), "store").select("item", "price", "t")
    web = (
        sales(df.where("v % 3 = 0"))
        .join(dimension(df, "days", "shuffle_hash"), "day")
        .select("item", "price", "t")
    )
    wide = shop.union(web).join(dimension(df, "items_bucketed", "merge"), "item")
    return wide.groupBy("item", "category").agg(F.sum("price").alias("price"))


def channels_counted_apart(df: DataFrame) -> DataFrame:
    """Each channel has its own state; then all are united by their common key."""

    def once(channel: DataFrame) -> DataFrame:
        return sales(channel).select("item", "t").dropDuplicates(["item", "t"])

    both = once(df).union(once(df.where("v % 3 = 0"))).join(dimension(df, "items_cached", "merge"), "item")
    return both.groupBy("item", F.window("t", "1 minute")).agg(F.count("*").alias("n"))


#: The queries by their special features, with the output mode.
STARS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "star, all broadcast, then sums": (by_all("broadcast"), "update"),
    "star, all sort-merge, then sums": (by_all("merge"), "update"),
    "star, all shuffled hash, left, then sums": (by_all("shuffle_hash", how="left"), "complete"),
    "star, all bucketed, then sums": (by_all("merge", "_bucketed"), "update"),
    "star, all cached, then sums": (by_all("merge", "_cached", "left"), "complete"),
    "star, joins before and after sums": (before_and_after("merge"), "update"),
    "star, joins before and after sums, bucketed": (before_and_after("merge", "_bucketed"), "complete"),
    "star, joins before and after sums, broadcast": (before_and_after("broadcast"), "update"),
    "star, sums, join, sums": (twice_aggregated("merge"), "append"),
    "star, sums, join with cached, sums": (twice_aggregated("shuffle_hash", "_cached"), "append"),
    "star, one exchange for two operators and a join": (of_one_key("merge"), "append"),
    "star, one exchange for two operators and a cached table": (
        of_one_key("merge", "_cached", "left"),
        "append",
    ),
    "star, one exchange for two operators and a bucketed table": (
        of_one_key("shuffle_hash", "_bucketed", "left_anti"),
        "append",
    ),
    "star, snowflake": (snowflake, "update"),
    "star, a table's aggregate": (with_aggregated_dimension, "complete"),
    "star, two streams of facts": (sold_and_returned("inner", "merge"), "append"),
    "star, two streams of facts, outer": (sold_and_returned("leftOuter", "shuffle_hash"), "append"),
    "star, subqueries": (chosen, "update"),
    "star, rollup": (rolled_up, "complete"),
    "star, union of channels": (channels, "update"),
    "star, channels with state of their own": (channels_counted_apart, "append"),
}
