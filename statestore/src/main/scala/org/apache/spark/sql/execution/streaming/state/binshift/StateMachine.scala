package org.apache.spark.sql.execution.streaming.state.binshift

/**
 * Knows in which of a few states something is, and into which it may change. Any other change throws and leaves it as it is.
 *
 * One thread at a time changes the state; any thread may ask for it.
 *
 * @param what names the thing in the error
 * @param next for each state, those that may follow
 */
private[binshift] final class StateMachine[S](what: => String, next: Map[S, Set[S]], first: S) {
  @volatile private var state = first

  def now: S = state

  def become(to: S): Unit = {
    if (!next(state)(to))
      throw new IllegalStateException(s"$what is $state and cannot become $to; report this as a bug of binshift")
    state = to
  }
}
