package binshift

import org.apache.spark.sql.binshift.sql.BinshiftCatalog

/**
 * The class of `spark.sql.catalog.binshift`, by which SQL sees the running queries that use binshift and rescales them.
 *
 * A session that has the jar gets the catalog by itself.
 */
class Catalog extends BinshiftCatalog
