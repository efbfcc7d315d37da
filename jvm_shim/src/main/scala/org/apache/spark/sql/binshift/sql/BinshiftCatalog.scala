package org.apache.spark.sql.binshift.sql

import java.util

import org.apache.spark.sql.catalyst.analysis.{NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A catalog of one namespace, `system`, with tables to read ([[SystemTables]]) and procedures to call ([[Procedures]]).
 *
 * It has no state of its own, and asks the running queries of the application for everything. Spark makes one for each session, and
 * calls it on the thread that analyses a statement.
 */
class BinshiftCatalog extends TableCatalog with SupportsNamespaces with ProcedureCatalog {
  private var ownName = BinshiftCatalog.Name

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = ownName = name

  override def name(): String = ownName

  override def defaultNamespace(): Array[String] = System

  override def loadTable(ident: Identifier): Table =
    if (isSystem(ident.namespace)) SystemTables.All.getOrElse(ident.name, throw new NoSuchTableException(ident))
    else throw new NoSuchTableException(ident)

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    requireSystem(namespace)
    SystemTables.All.keys.toArray.sorted.map(Identifier.of(System, _))
  }

  override def loadProcedure(ident: Identifier): UnboundProcedure = SqlFailure.raised {
    Option.when(isSystem(ident.namespace))(ident.name).flatMap(Procedures.All.get).getOrElse(
      throw BinshiftException("INVALID_VALUE", "name" -> "procedure", "value" -> ident.name).configuration(
        s"there is no procedure ${(ident.namespace :+ ident.name).mkString(".")} in catalog $ownName; there are " +
          Procedures.All.keys.toSeq.sorted.map(p => s"system.$p").mkString(", ")))
  }

  override def listProcedures(namespace: Array[String]): Array[Identifier] = {
    requireSystem(namespace)
    Procedures.All.keys.toArray.sorted.map(Identifier.of(System, _))
  }

  override def listNamespaces(): Array[Array[String]] = Array(System)

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] = {
    if (namespace.nonEmpty) requireSystem(namespace)
    if (namespace.isEmpty) Array(System) else Array.empty
  }

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    requireSystem(namespace)
    util.Map.of()
  }

  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit = throw readOnly()
  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = throw readOnly()
  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean = throw readOnly()
  override def createTable(
      ident: Identifier, columns: Array[Column], partitions: Array[Transform], properties: util.Map[String, String]): Table =
    throw readOnly()
  override def alterTable(ident: Identifier, changes: TableChange*): Table = throw readOnly()
  override def dropTable(ident: Identifier): Boolean = throw readOnly()
  override def renameTable(oldIdent: Identifier, newIdent: Identifier): Unit = throw readOnly()

  private def isSystem(namespace: Array[String]): Boolean = namespace.sameElements(System)

  private def requireSystem(namespace: Array[String]): Unit =
    if (!isSystem(namespace)) throw new NoSuchNamespaceException(namespace)

  private def readOnly(): SqlFailure = new SqlFailure(BinshiftException("CATALOG_READ_ONLY").configuration(
      s"catalog $ownName only shows running queries, so its tables cannot be changed; rescale a query with CALL $ownName.system.rescale"))

  private def System: Array[String] = Array("system")
}

private[binshift] object BinshiftCatalog {
  val Name = "binshift"
  private val Key = s"spark.sql.catalog.$Name"

  /** Registers the catalog in a session, unless another one has its name. */
  def register(session: SparkSession): Unit = {
    val conf = session.sessionState.conf
    if (!conf.contains(Key)) conf.setConfString(Key, classOf[binshift.Catalog].getName)
  }
}
