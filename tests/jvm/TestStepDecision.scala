package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.execution.streaming.state.binshift.routing.Delivery

/** Checks what is decided about a step, for every combination of facts. */
object TestStepDecision {
  import Delivery._
  import StepDecision._

  /** A step to four partitions, whose bins are copied ahead, at epoch 10. Two partitions have been there since epoch 3. */
  private val Ten = StepFacts(step = 0, epoch = 10, since = 3, isOpening = false, partitions = 2, wanted = 4, openedAtOnce = 2,
    startEpoch = 0, gap = 0, Ahead, isOrdered = false, copies = None, maxIdle = 3)
  private val Opened = Ten.copy(partitions = 4)
  private val Ordered = Opened.copy(isOrdered = true)
  private val Files = WholeFiles(Map(2 -> 0))

  private def missing(bins: Long, idle: Int = 0) = CopyState(bins, total = 8, bytes = 100, idle = idle)
  private def hindered(o: Obstacles) = Ordered.copy(copies = Some(missing(0)), obstacles = o)
  private def waitsFor(reason: Reason): Decision = Wait(reason)

  private val Expected: Seq[(StepFacts, Decision)] = Seq(
    Ten -> Open(4, orders = true),
    Ten.copy(openedAtOnce = 1) -> Open(3, orders = false),
    Ten.copy(startEpoch = 99) -> Open(4, orders = true),
    // The copies of a step that moves nothing to new partitions were ordered with the step before it.
    Ten.copy(step = 1, isOrdered = true) -> Open(4, orders = false),
    Opened -> Order,
    Opened.copy(startEpoch = 99) -> Order,
    Ordered.copy(since = 9, isOpening = true) -> waitsFor(Reason.Opening),
    Ordered.copy(since = 8, isOpening = true, copies = Some(missing(0))) -> Take(Ahead),
    Ordered -> waitsFor(Reason.Answer),
    Ordered.copy(copies = Some(missing(8, idle = 2))) -> waitsFor(Reason.Missing(missing(8, idle = 2))),
    Ordered.copy(copies = Some(missing(8, idle = 3))) -> Take(AtSwitch),
    Ordered.copy(copies = Some(missing(8, idle = 3)), startEpoch = 11) -> waitsFor(Reason.Missing(missing(8, idle = 3))),
    Ordered.copy(copies = Some(missing(0)), startEpoch = 11) -> waitsFor(Reason.NotBefore(11)),
    Ordered.copy(copies = Some(missing(0)), startEpoch = 10) -> Take(Ahead),
    Ordered.copy(copies = Some(missing(0)), step = 1, since = 9, gap = 2) -> waitsFor(Reason.NotBefore(12)),
    Ten.copy(delivery = OnDemand, startEpoch = 99) -> Open(4, orders = false),
    Opened.copy(delivery = OnDemand) -> Take(OnDemand),
    Ten.copy(delivery = Files, startEpoch = 12) -> waitsFor(Reason.NotBefore(11)),
    Ten.copy(delivery = Files, startEpoch = 11) -> Open(4, orders = false),
    Opened.copy(delivery = Files, startEpoch = 11) -> waitsFor(Reason.NotBefore(11)),
    Opened.copy(delivery = Files) -> Take(Files),
    Ten.copy(delivery = AtSwitch) -> Take(AtSwitch),
    Ten.copy(delivery = AtSwitch, startEpoch = 12) -> waitsFor(Reason.NotBefore(12)),
    Ten.copy(fits = false) -> Abandon,
    Ten.copy(fits = false, early = Some(Reason.RunAgain)) -> waitsFor(Reason.RunAgain),
    hindered(Obstacles(isDeleting = true, isFetching = true)) -> waitsFor(Reason.Deletion),
    hindered(Obstacles(isFetching = true, misplaced = 1)) -> waitsFor(Reason.OnTheWay),
    hindered(Obstacles(misplaced = 2, noRoom = Some("full"))) -> waitsFor(Reason.Misplaced(2)),
    hindered(Obstacles(noRoom = Some("full"), lost = Some("gone"))) -> waitsFor(Reason.Trouble("full")),
    hindered(Obstacles(lost = Some("gone"), unanswered = 1)) -> waitsFor(Reason.Trouble("gone")),
    hindered(Obstacles(unanswered = MaxUnanswered + 1)) -> Take(Ahead))

  private val Said: Seq[(Reason, String)] = Seq(
    Reason.Missing(CopyState(12, 256, awaiting = Seq(5 -> "2", 3 -> "2"))) ->
      "waits for 12 of 256 copies, of partitions 3 and 5 on executor 2",
    Reason.Missing(CopyState(1, 8, awaiting = (10 to 17).map(_ -> "4") :+ (2 -> "1"))) ->
      "waits for 1 of 8 copies, of partition 2 on executor 1 and 8 partitions on executor 4",
    Reason.Missing(CopyState(9, 8)) -> "waits for 9 of 9 copies",
    Reason.Misplaced(1) -> "waits for 1 partition to run on another executor",
    Reason.Trouble("it is full") -> "waits: it is full")

  /** Facts at an epoch, the copies that tasks report at the next one, and for how many epochs the step has waited in vain by then. */
  private val Idle: Seq[(StepFacts, CopyState, Int)] = {
    val waiting = Ordered.copy(copies = Some(missing(8, idle = 1)))
    Seq(
      (waiting, missing(8), 2),
      (waiting, missing(8).copy(bytes = 101), 0),
      (waiting.copy(startEpoch = 99), missing(8), 2),
      // It did not wait for the copies.
      (waiting.copy(obstacles = Obstacles(misplaced = 1)), missing(8), 0),
      (waiting.copy(early = Some(Reason.RunAgain)), missing(8), 0),
      (waiting.copy(partitions = 3), missing(8), 0),
      (Ordered, missing(8), 0))
  }

  private val Obstructions = Seq(Obstacles(isDeleting = true), Obstacles(isFetching = true), Obstacles(misplaced = 1),
    Obstacles(noRoom = Some("full")), Obstacles(lost = Some("gone")), Obstacles(unanswered = 1),
    Obstacles(unanswered = MaxUnanswered))

  /** Facts of a step that nothing hinders. */
  private def free: Iterator[StepFacts] =
    for {
      (delivery, isOrdered) <- Iterator(AtSwitch -> false, OnDemand -> false, Files -> false, Ahead -> false, Ahead -> true)
      copies <-
        if (isOrdered) None +: (for (bins <- 0L to 2L; idle <- Seq(0, 2, 3)) yield Some(missing(bins, idle))) else Seq(None)
      step <- Seq(0, 1)
      (since, isOpening) <- Seq(3L -> false, 9L -> false, 9L -> true, 8L -> true)
      wanted <- Seq(1, 2, 3, 4, 9)
      atOnce <- 1 to 3
      startEpoch <- Seq(0L, 10L, 11L, 12L, 99L)
      gap <- Seq(0, 2)
      maxIdle <- Seq(0, 3)
    } yield Ten.copy(step, since = since, isOpening = isOpening, wanted = wanted, openedAtOnce = atOnce, startEpoch = startEpoch,
      gap = gap, delivery = delivery, isOrdered = isOrdered, copies = copies, maxIdle = maxIdle)

  /** Returns `null`, or what is wrong. */
  def check(): String = (unexpected ++ free.flatMap(wrong)).nextOption().orNull

  /** How many combinations there are. */
  def combinations(): Int = free.size

  private def unexpected: Iterator[String] = Expected.iterator.collect {
    case (facts, decision) if decide(facts) != decision => s"$facts should be $decision, and not ${decide(facts)}"
  } ++ Said.collect { case (reason, text) if reason.text != text => s"'${reason.text}' should be '$text'" } ++ Idle.collect {
    case (before, now, epochs) if !idle(before, now).contains(epochs) => s"$now after $before is not idle for $epochs epochs"
  }

  private def idle(before: StepFacts, now: CopyState): Option[Int] =
    before.after.copy(copies = Some(now)).following(Some(decide(before))).copies.map(_.idle)

  private def wrong(f: StepFacts): Option[String] = {
    def isHindered = Obstructions.forall(o => isWait(decide(f.copy(obstacles = o)))) &&
      isWait(decide(f.copy(early = Some(Reason.RunAgain)))) && decide(f.copy(fits = false)) == Abandon
    Seq(
      "it is decided though something is in its way" -> isHindered,
      "it is not as it should be" -> isLegal(f, decide(f)),
      "fewer copies are better than more" -> f.copies.forall(c =>
        !isTake(f) || (0L to c.missing).forall(n => isTake(f.copy(copies = Some(c.copy(missing = n)))))),
      "it could be taken an epoch before, and not any more" -> (!isTake(f) || isTake(f.after)),
      s"the earliest epoch is not ${StepDecision.earliest(f)}" -> (f.step > 0 || StepDecision.earliest(f) == earliest(f)),
      "partitions are opened twice, or not all of them" -> (opened(f) == wantedOpenings(f))).collectFirst { case (what, false) =>
      s"$what: $f is ${decide(f)}"
    }
  }

  private def isLegal(f: StepFacts, decision: Decision): Boolean = decision match {
    case Wait(Reason.NotBefore(epoch)) => f.epoch < epoch && epoch <= f.notBefore && says(decision, epoch)
    case Wait(Reason.Missing(of)) => of.missing > 0 && says(decision, of.missing) && says(decision, of.total)
    case Wait(reason) => f.delivery == Ahead && f.isOrdered && reason.text.matches("waits (for|until) .*")
    case Open(n, orders) => f.partitions < n && n <= f.wanted && n - f.partitions <= f.openedAtOnce &&
      orders == (f.delivery == Ahead && !f.isOrdered && n == f.wanted)
    case Order => f.delivery == Ahead && !f.isOrdered && f.wanted <= f.partitions
    case Take(Ahead) => isDue(f) && f.delivery == Ahead && f.isOrdered && f.copies.exists(_.missing == 0)
    case Take(AtSwitch) if f.delivery == Ahead => isDue(f) && f.copies.exists(c => c.missing > 0 && c.idle >= f.maxIdle)
    case Take(delivery) => isDue(f) && delivery == f.delivery
    case Abandon => false
  }

  private def isDue(f: StepFacts) = f.epoch >= f.notBefore && (f.delivery == AtSwitch || f.wanted <= f.partitions)

  private def says(decision: Decision, number: Long) = decision match {
    case Wait(reason) => s"\\b$number\\b".r.findFirstIn(reason.text).isDefined
    case _ => false
  }

  private def isWait(decision: Decision) = decision match {
    case Wait(reason) => reason.text.startsWith("waits")
    case _ => false
  }

  private def isTake(f: StepFacts) = decide(f) match {
    case Take(_) => true
    case _ => false
  }

  /** The first epoch at which a first step can be taken, counted in another way. */
  private def earliest(f: StepFacts): Long = {
    val openings = wantedOpenings(f)
    val epochs =
      if (f.delivery != Ahead) openings
      else if (openings > 0) openings + 1
      else if (!f.isOrdered) 2
      else if (f.isOpening && f.since == 9) 1
      else 0
    math.max(f.epoch + epochs, f.startEpoch)
  }

  private def wantedOpenings(f: StepFacts): Int =
    if (f.delivery == AtSwitch) 0 else math.ceil(math.max(f.wanted - f.partitions, 0).toDouble / f.openedAtOnce).toInt

  /** How many epochs open partitions until the step is taken. */
  private def opened(f: StepFacts): Int = Iterator.iterate((f, 0)) { case (now, n) =>
    decide(now) match {
      case Open(partitions, _) => (now.after.copy(partitions = partitions, since = now.epoch, isOpening = true), n + 1)
      case _ => (now.after, n)
    }
  }.drop(120).next()._2
}
