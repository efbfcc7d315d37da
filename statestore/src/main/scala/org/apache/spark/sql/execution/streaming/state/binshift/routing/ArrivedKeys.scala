package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, BindReferences, SortOrder, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{KeyBins, KeyHashes}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.util.collection.OpenHashSet

/**
 * Remembers the keys of the rows that a running task has handed to an operator, by their hashes. A key of the operator's state that
 * isn't among them has changed on its way.
 *
 * If the 32-bit hashes of two keys are equal, a changed key may be taken for one that came. That hardly ever happens with the few
 * keys of a task, and a later epoch will find it.
 *
 * Thread-safe: Python's operators read rows on another thread than the one that writes state.
 *
 * @param names names of the key's columns, with structs taken apart
 */
private[binshift] final class ArrivedKeys(names: Seq[String]) {
  private val whole = new OpenHashSet[Int]
  private val without = Seq.fill(names.size)(new OpenHashSet[Int])

  /** @param hash the hash of the whole key */
  def add(hash: Int, key: UnsafeRow, hashes: KeyHashes): Unit = synchronized {
    if (!whole.contains(hash)) {
      whole.add(hash)
      val others = hashes.withoutEach(key)
      without.indices.foreach(i => without(i).add(others.getInt(i)))
    }
  }

  def has(hash: Int): Boolean = synchronized(whole.contains(hash))

  /**
   * The columns in which `key`, which has changed, differs from a key that came; all columns if it differs in several. It may differ
   * from different keys in different single columns. Then columns that are null are more likely to have been something else.
   */
  def changed(key: UnsafeRow, bins: KeyBins): Seq[String] = {
    val others = bins.hashes.withoutEach(key)
    val found = synchronized(without.indices.filter(i => without(i).contains(others.getInt(i))))
    val columns = bins.keyOf(key)
    val nulls = found.filter(i => columns.isNullAt(i))
    if (found.isEmpty) names else (if (nulls.isEmpty) found else nulls).map(names)
  }
}

private[binshift] object ArrivedKeys {
  private val tasks = new ConcurrentHashMap[(Long, Long), ArrivedKeys]()

  /** The keys noted by an attempt of a task for an operator; `None` if it notes none. */
  def of(attempt: Long, operator: Long): Option[ArrivedKeys] = Option(tasks.get((attempt, operator)))

  /** Begins to note keys, for an operator in the task of this thread. An operator with two inputs calls it twice. */
  def begin(operator: Long, names: Seq[String]): ArrivedKeys = {
    val task = TaskContext.get()
    val key = (task.taskAttemptId(), operator)
    val fresh = new ArrivedKeys(names)
    Option(tasks.putIfAbsent(key, fresh)).getOrElse {
      task.addTaskCompletionListener[Unit] { _ =>
        tasks.remove(key)
        ()
      }
      fresh
    }
  }

  /** The names of a key's columns, with structs taken apart. */
  def namesOf(columns: Seq[(String, DataType)]): Seq[String] = columns.flatMap {
    case (name, s: StructType) => namesOf(s.map(f => s"$name.${f.name}" -> f.dataType))
    case (name, _) => Seq(name)
  }
}

/**
 * Notes the keys of the rows that an operator gets ([[ArrivedKeys]]), and passes the rows on unchanged.
 *
 * @param keys     the columns of the child that the operator's exchange hashes
 * @param operator id of the operator
 */
private[sql] final case class NoteKeysExec(keys: Seq[Attribute], operator: Long, child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  override protected def doExecute(): RDD[InternalRow] = {
    val bound = BindReferences.bindReferences(keys, child.output)
    val (id, names) = (operator, ArrivedKeys.namesOf(keys.map(k => k.name -> k.dataType)))
    child.execute().mapPartitionsInternal { rows =>
      val arrived = ArrivedKeys.begin(id, names)
      val hashes = new KeyBins(bound, bins = 1).hashes
      // Rows come in the order of their keys, so it suffices to compare with the key before.
      var last = Option.empty[Int]
      rows.map { row =>
        val key = row.asInstanceOf[UnsafeRow]
        val hash = hashes.whole(key)
        if (!last.contains(hash)) {
          arrived.add(hash, key, hashes)
          last = Some(hash)
        }
        row
      }
    }
  }

  override protected def withNewChildInternal(newChild: SparkPlan): SparkPlan = copy(child = newChild)
}
