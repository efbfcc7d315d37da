"""Requests that another process leaves in the checkpoint of a query."""

import json
import logging
import os
import uuid
from collections import Counter

import pytest
from pyspark.errors import AnalysisException

from binshift import AllAtOnce, Fluid, MigrationError, RoutingTable
from binshift.control.signing import signed
from binshift.planning.options import MigrationOptions
from harness import held_up_at, plans, until
from local.mailbox import Mailbox
from local.migrations import feed_until
from local.queries import count_by_key


@pytest.fixture
def run(stream):
    return stream(count_by_key).start()


def test_a_plan_left_while_the_query_is_stopped_takes_effect_when_it_is_started_again(run):
    run.run(0)
    plan = run.attach().plan(4, strategy=AllAtOnce())
    run.stop()
    box = Mailbox(run)
    id = box.submit(plan)
    for _ in range(3):
        run.feed([{"k": f"key{i}", "v": i, "t": "2026-01-01 00:00:00"} for i in range(40)])
    run.start(availableNow=True).query.awaitTermination()
    assert box.answer(id)["epoch"] == 1
    assert box.result(id) == {"migration_id": id}
    # A driver that crashed after it took the plan, and before it deleted the request, finds it again.
    (box.answers / f"{id}.json").unlink()
    assert box.submit(plan, id=id) == id
    run.start()
    run.run(4)
    assert box.result(id) == {"migration_id": id}
    controller = run.attach()
    assert controller.migration() is None
    assert {(r["migration_id"], r["partitions"]) for r in controller.history().to_pylist()} == {(id, 4)}
    counts = Counter({r.k: r["count"] for r in run.batch().groupBy("k").count().collect()})
    assert {key[0]: value[0] for key, value in run.state()} == counts


def test_a_plan_that_is_withdrawn_while_it_is_accepted_moves_nothing(run):
    run.run(0)
    controller = run.attach()
    box, ids = Mailbox(run), []
    with held_up_at("request.submitted", lambda: ids.append(box.submit(controller.plan(4)))):
        (box.requests / f"{ids[0]}.json").unlink()
    assert until((box.answers / f"{ids[0]}.json").exists)
    assert (box.error(ids[0])["kind"], box.error(ids[0])["condition"]) == (
        "MigrationError",
        "MIGRATION_CANCELLED",
    )
    run.run(1, 2)
    assert controller.migration() is None
    assert controller.routing().partitions == 2
    # The next migration isn't affected by a request that was answered.
    run.run(3)
    again = box.submit(controller.plan(4))
    box.wait()
    assert box.result(again) == {"migration_id": again}


def test_requests_wait_until_an_epoch_that_is_run_again_is_committed(run):
    run.run(0, 1)
    plan = run.attach().plan(4, strategy=AllAtOnce())
    run.stop()
    run.forget(1)
    box = Mailbox(run)
    id = box.submit(plan)
    waiting = []
    keep = run._keep

    def look(batch, epoch):
        # Another run may be alive, and serve it.
        waiting.append((epoch, (box.requests / f"{id}.json").exists()))
        keep(batch, epoch)

    run._keep = look
    run.start()
    run.query.processAllAvailable()
    assert waiting == [(1, True)]
    box.wait()
    assert box.result(id) == {"migration_id": id}
    run.run(2, 3, 4)
    assert run.attach().routing().partitions == 4
    counts = Counter({r.k: r["count"] for r in run.batch().groupBy("k").count().collect()})
    assert {key[0]: value[0] for key, value in run.state()} == counts


def test_requests_are_left_to_the_run_that_began_last(run):
    run.run(0)
    routers = run.spark._jvm.org.apache.spark.sql.binshift.query.QueryRouters
    place = routers.known(run.query._jsq.runId()).get().place()
    assert place.isNewest()
    claims = run.checkpoint / "binshift/runs"
    other = json.loads((claims / "1").read_text()) | {"run": str(uuid.uuid4()), "began": 1}
    (claims / "2").write_text(json.dumps(other))
    assert not place.isNewest()
    # The other one has come no further: the epoch that it began with is this run's.
    run.run(1)
    assert place.isNewest()


def test_a_run_that_has_ended_takes_no_plan(run):
    run.run(0)
    plan = run.attach().plan(4, strategy=AllAtOnce())
    routers = run.spark._jvm.org.apache.spark.sql.binshift.query.QueryRouters
    router = routers.known(run.query._jsq.runId()).get()
    run.stop()
    options = json.dumps({"start_epoch": None, "prepare": False, "place_on": [], "vacate": None})
    with pytest.raises(Exception, match="has ended"):
        router.submit(plan.to_json(), options, "late")
    assert plans(run.checkpoint) == []


def test_a_running_query_answers_requests_and_goes_on_whatever_they_are(run):
    run.run(0)
    controller = run.attach()
    box = Mailbox(run)
    # Before anything is asked: answers go when others are given, which may be at once.
    old = [box.answers / f"old{i}.json" for i in range(70)]
    box.answers.mkdir(exist_ok=True)
    for i, file in enumerate(old):
        file.write_text("{}")
        os.utime(file, (i, i))
    fluid = controller.plan(3, strategy=Fluid())
    foreign = json.loads(fluid.to_json())
    foreign["source"]["assignment"] = foreign["source"]["assignment"][::-1]
    refused = box.ask("submit", plan=foreign)
    submitted = box.submit(fluid)
    placement, stats, status = box.ask("placement"), box.ask("stats"), box.ask("status")
    wrong = {
        box.put("{no json"): ("ConfigurationError", "REQUEST_UNREADABLE", "cannot be read"),
        box.put('{"format": 1, "id": "another"}'): ("ConfigurationError", "REQUEST_UNREADABLE", "file name"),
        box.ask("dance"): ("ConfigurationError", "REQUEST_UNREADABLE", "its kind is dance"),
        box.put(json.dumps({"format": 2})): ("ConfigurationError", "REQUEST_UNREADABLE", "reads format 1"),
        box.ask("submit"): ("PlanError", "PLAN_UNREADABLE", "cannot be read"),
        refused: ("PlanError", "PLAN_OUTDATED", "plan again"),
        box.submit(fluid): ("MigrationError", "MIGRATION_UNDER_WAY", submitted),
        box.ask("cancel", migration_id="nobody"): ("MigrationError", "NO_MIGRATION", "nobody"),
        box.ask("rollback", migration_id="nobody"): ("MigrationError", "ROLLBACK_IMPOSSIBLE", "nobody"),
        # Served again, it could be about another one.
        box.ask("rollback"): ("ConfigurationError", "REQUEST_UNREADABLE", "no migration_id"),
    }
    ignored = [box.requests / name for name in ("_later.json", "notes.txt")]
    for file in ignored:
        file.write_text("{}")
    box.wait()
    assert until(lambda: len(list(box.answers.glob("*.json"))) == 64)

    assert box.result(submitted) == {"migration_id": submitted}
    assert controller.migration().id == submitted
    for id, (kind, condition, part) in wrong.items():
        error = box.error(id)
        assert (error["kind"], error["condition"]) == (kind, condition)
        assert part in error["message"]
    where = box.result(placement)
    context = run.spark.sparkContext
    assert where.pop("application") == f"{context.applicationId}@{context.startTime}"
    assert where == {
        "executors": ["driver"],
        "partitions": [["driver"]] * 2,
        "decommissioned": [],
        "leaving": [],
        "excluded": [],
    }
    table = box.result(status)["routing"]
    assert (table["epoch"], tuple(table["assignment"])) == (0, controller.plan(2).source.assignment)
    assert box.result(status)["progress"]["steps_done"] == 0
    answered = box.result(stats)
    assert answered["epoch"] == 0
    assert sum(answered["columns"]["keys"]) == len(run.outputs[0])
    assert set(answered["columns"]) == set(controller.stats().column_names)
    assert all(file.exists() for file in ignored)
    assert not old[0].exists()
    run.run(1, 2)
    assert controller.routing().epoch > 0

    cancelled = box.ask("cancel", migration_id=submitted)
    box.wait()
    run.run(3)
    assert box.result(cancelled) == {}
    assert controller.migration() is None

    run.spark.conf.set("spark.sql.streaming.stateStore.binshift.requests.enabled", "false")
    run.stop()
    run.start()
    unseen = box.ask("status")
    run.run(4)
    assert (box.requests / f"{unseen}.json").exists()


def test_a_query_says_how_migrations_ended_of_which_no_file_tells(run):
    run.run(0)
    controller, box = run.attach(), Mailbox(run)
    nothing = controller.rescale(2)
    drain = controller._submit(controller.plan(controller.routing()), MigrationOptions(vacate="driver"))
    under_way = box.ask("status", migration_id=drain.id)
    box.wait()
    drain.cancel()
    asked = [box.ask("status", migration_id=id) for id in (nothing.id, drain.id, "nobody")]
    box.wait()
    assert drain.wait(60).cancelled
    told = [box.result(answer)["progress"] for answer in (under_way, *asked)]
    assert [None if p is None else p["state"] for p in told] == ["waiting", "finished", "cancelled", None]
    assert told[2]["steps_done"] == 0


def test_what_has_finished_is_not_reported_as_cancelled(run, caplog):
    run.run(0)
    controller, box = run.attach(), Mailbox(run)
    migration = controller.rescale(4, strategy=AllAtOnce(), prepare=False)
    run.run(1, 2)
    with caplog.at_level(logging.INFO, "binshift"):
        migration.cancel()
    assert f"migration {migration.id} is over; there was nothing to cancel" in caplog.text
    assert "is cancelled" not in caplog.text
    assert not migration.wait(60).cancelled
    late = box.ask("cancel", migration_id=migration.id)
    box.wait()
    error = box.error(late)
    assert (error["condition"], error["parameters"]) == ("NO_MIGRATION", {"migration_id": migration.id})
    assert "has finished" in error["message"]
    with pytest.raises(AnalysisException, match="has finished"):
        run.spark.sql(
            f"CALL binshift.system.cancel(query => '{run.query.id}', migration_id => '{migration.id}')"
        ).collect()
    # A client that did not hear that it was cancelled asks again.
    other = controller.rescale(2, strategy=Fluid(), prepare=False)
    asked = [box.ask("cancel", migration_id=other.id) for _ in range(2)]
    box.wait()
    assert [box.result(id) for id in asked] == [{}, {}]


def test_a_plan_for_the_executors_of_another_application_is_refused(run):
    run.run(0)
    controller, box = run.attach(), Mailbox(run)
    placement = box.ask("placement")
    box.wait()
    plan = controller.plan(controller.routing())

    def drain(application):
        options = MigrationOptions(vacate="driver", application=application).as_dict()
        return box.ask("submit", plan=json.loads(plan.to_json()), options=options)

    late = drain("app-1@1")
    box.wait()
    assert controller.migration() is None
    assert plans(run.checkpoint) == []
    error = box.error(late)
    assert (error["kind"], error["condition"]) == ("PlanError", "EXECUTORS_CHANGED")
    assert error["parameters"] == {"application": "app-1@1"}
    assert controller._placement().leaving == ()
    taken = drain(box.result(placement)["application"])
    box.wait()
    assert controller.migration().id == taken


def test_partitions_are_placed_on_live_executors_and_on_all_if_those_have_died_since(run):
    run.run(0)
    controller, box = run.attach(), Mailbox(run)
    plan = controller.plan(4, strategy=AllAtOnce())

    def submit(*executors):
        options = MigrationOptions(prepare=False, place_on=executors).as_dict()
        return box.ask("submit", plan=json.loads(plan.to_json()), options=options)

    dead = submit("driver", "7")
    box.wait()
    error = box.error(dead)
    assert (error["kind"], error["condition"]) == ("PlanError", "EXECUTOR_NOT_ALIVE")
    assert error["parameters"] == {"executor": "7"}
    assert controller.migration() is None
    assert plans(run.checkpoint) == []
    taken = submit("driver")
    box.wait()
    assert controller.migration().id == taken
    run.stop()
    # As if it had named an executor that is gone now.
    (file,) = plans(run.checkpoint)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_text(file.read_text().replace('["driver"]', '["7"]'))
    log = run.spark._jvm.org.apache.spark.sql.binshift.TestLog
    log.listen()
    try:
        run.start().run(1, 2, 3)
        heard = [line for line in log.heard() if str(run.query.id) in line and "none is alive" in line]
    finally:
        log.end()
    assert heard == [
        f"WARN query {run.query.id}: of the executors 7, which should get partitions, none is alive any "
        "more; the partitions go to driver"
    ]
    assert run.attach().routing().partitions == 4


def test_what_another_driver_has_accepted_is_neither_replaced_nor_deleted_and_goes_on_afterwards(run):
    run.run(0)
    controller = run.attach()
    mine = controller.rescale(4, strategy=AllAtOnce(), prepare=False)
    (file,) = plans(run.checkpoint)
    # One that doesn't fit, one in the form of earlier versions, and one that fits.
    accepted = json.loads(file.read_text())
    now = controller.routing()
    swapped = RoutingTable(2, tuple(1 - owner for owner in now.assignment))
    unfit = json.loads(AllAtOnce().plan(swapped, now).to_json())
    (file.parent / "0-unfit.json").write_text(json.dumps(accepted | {"id": "0-unfit", "plan": unfit}))
    old = file.parent.parent / "plan.json"
    old.write_text(json.dumps(accepted | {"id": "old", "cancelled": True}))
    (file.parent / "theirs.json").write_text(json.dumps(accepted | {"id": "theirs"}))
    mine.cancel()
    assert mine.wait(60).cancelled
    assert not file.exists()
    assert controller.migration().id == "0-unfit"
    assert not old.exists()
    feed_until(run, 1, lambda: not plans(run.checkpoint))
    assert controller.routing().partitions == 4
    # One of a driver that has accepted it late.
    (file.parent / "late.json").write_text(json.dumps(accepted | {"id": "late"}))
    with pytest.raises(MigrationError, match="migration late was accepted by another run") as refused:
        controller.rescale(2, strategy=AllAtOnce(), prepare=False)
    assert refused.value.condition == "MIGRATION_UNDER_WAY"
    assert [f.name for f in plans(run.checkpoint)] == ["late.json"]


SECRET = b"correct horse battery staple"
PREFIX = "spark.sql.streaming.stateStore.binshift.requests."


def test_a_query_that_takes_signed_requests_refuses_others_by_name_and_each_copy(stream, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    run = stream(count_by_key, conf={PREFIX + "enabled": "signed", PREFIX + "secretFile": str(secret)}).start()
    run.run(0)
    box = Mailbox(run)
    query = str(run.query.id)

    def request(secret=SECRET, query=query, kind="status", **changed):
        id = str(uuid.uuid4())
        made = signed({"format": 1, "id": id, "kind": kind}, secret, query)
        return box.put(json.dumps({**made, **changed}), id)

    def outcomes(*ids):
        box.wait()
        return [(box.answer(id).get("error") or {"condition": None})["condition"] for id in ids]

    first = request()
    kept = (box.requests / f"{first}.json").read_text()
    assert outcomes(first) == [None]
    other = signed({"format": 1, "id": str(uuid.uuid4()), "kind": "cancel"}, SECRET, query)["signed"]
    assert outcomes(
        box.ask("status"),
        request(secret=b"another secret, as long"),
        request(query=str(uuid.uuid4())),
        request(signed=other),
        request(signature="no hexadecimal number"),
        request(kind="dance"),
    ) == ["REQUEST_NOT_SIGNED", *["REQUEST_SIGNATURE_WRONG"] * 4, "REQUEST_UNREADABLE"]
    # A copy, while its answer is there, when it is gone, under another name, and in another run.
    box.put(kept, first)
    assert outcomes(first) == [None]
    (box.answers / f"{first}.json").unlink()
    box.put(kept, first)
    assert outcomes(first) == ["REQUEST_REPLAYED"]
    renamed = str(uuid.uuid4())
    box.put(json.dumps({**json.loads(kept), "id": renamed}), renamed)
    assert outcomes(renamed) in (["REQUEST_UNREADABLE"], ["REQUEST_REPLAYED"])
    run.stop()
    run.start()
    (box.answers / f"{first}.json").unlink()
    box.put(kept, first)
    after = request()
    run.run(1)
    assert outcomes(first, after) == ["REQUEST_REPLAYED", None]
    served = json.loads((run.checkpoint / "binshift/served.json").read_text())["requests"]
    # Includes the request of an unknown kind, because it was signed and answered.
    assert {first, after} <= {r["id"] for r in served}
    assert len(served) == 3


def test_a_query_that_wants_signatures_and_has_no_secret_does_not_start(stream, tmp_path):
    for secret in ("", "short"):
        file = tmp_path / "secret"
        file.write_text(secret)
        run = stream(
            count_by_key, conf={PREFIX + "enabled": "signed", PREFIX + "secretFile": str(file)}
        ).start()
        run.feed([{"k": "key1", "v": 1, "t": "2026-01-01 00:00:00"}])
        with pytest.raises(Exception, match="the secret is missing: it has"):
            run.query.processAllAvailable()
