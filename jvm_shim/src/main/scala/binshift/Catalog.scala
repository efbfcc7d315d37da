package binshift

import org.apache.spark.sql.binshift.sql.BinshiftCatalog

/**
 * The class for `spark.sql.catalog.binshift`, through which SQL shows and rescales the running queries that use binshift.
 *
 * A session with the jar registers the catalog by itself.
 */
class Catalog extends BinshiftCatalog
