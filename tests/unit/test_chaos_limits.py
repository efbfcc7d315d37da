"""Whether a life of `make chaos` notices migrations that end where they must not."""

import pytest

from chaos.limits import Entry, Noted, _ended

#: The tables of a migration of two steps: bins 1 and 3 go to a new partition.
TABLES = [(1, (0, 0, 0, 0)), (2, (0, 1, 0, 0)), (2, (0, 1, 0, 1))]
OPENED = (2, (0, 0, 0, 0))


def noted(end, **facts):
    plan = {"source": [1, [0, 0, 0, 0]], "steps": [[2, [[1, 1]]], [2, [[3, 1]]]], "end": end}
    return Noted.of([{"plan": plan}, {"did": "rescale", "migration": "m"}, *facts.get("then", ())])


def ended(end, tables, undone=(), *, is_under_way=False, **facts):
    entries = [Entry(t, "m", t == OPENED) for t in tables] + [Entry(t, "m-rollback", False) for t in undone]
    return _ended("m", TABLES[0], entries, noted(end, **facts), is_under_way=is_under_way)


@pytest.mark.parametrize("end", ["rollback", "guard", "keep", "finish"])
def test_the_target_is_a_fine_end_for_each(end):
    assert ended(end, [OPENED, *TABLES[1:]]) == "at the target"


@pytest.mark.parametrize("end", ["rollback", "guard"])
def test_what_is_undone_is_back_at_the_start(end):
    assert ended(end, [OPENED, TABLES[1]], [TABLES[0]]) == "back at the start"
    assert ended(end, [OPENED, *TABLES[1:]], [TABLES[1], TABLES[0]]) == "back at the start"
    assert ended(end, [OPENED], [TABLES[0]]) == "back at the start"


def test_only_a_deadline_that_says_so_stops_a_migration_on_its_way():
    assert ended("keep", [OPENED, TABLES[1]]) == "stopped on the way"
    assert ended("keep", [OPENED]) == "stopped on the way"
    for end in ("rollback", "guard", "finish"):
        with pytest.raises(ValueError, match="ended after 1 of 2 steps"):
            ended(end, [OPENED, TABLES[1]])
        assert ended(end, [OPENED, TABLES[1]], is_under_way=True) == "under way"


def test_a_rollback_that_ends_on_its_way_is_wrong():
    with pytest.raises(ValueError, match="2 of 2 steps, 1 of them undone"):
        ended("rollback", TABLES[1:], [TABLES[1]])


def test_only_what_may_be_undone_is():
    for end in ("keep", "finish"):
        with pytest.raises(ValueError, match="1 of them undone"):
            ended(end, [TABLES[1]], [TABLES[0]])
        assert ended(end, [TABLES[1]], [TABLES[0]], then=[{"undoes": "m"}]) == "back at the start"


def test_tables_are_those_of_the_plan_and_reports_those_of_the_routing_log():
    with pytest.raises(ValueError, match="other tables"):
        ended("rollback", [(2, (1, 0, 0, 0))])
    with pytest.raises(ValueError, match="was not undone over the tables"):
        ended("rollback", TABLES[1:], [TABLES[0]])
    with pytest.raises(ValueError, match=r"the report of m has \(1, 0\) steps"):
        ended("keep", TABLES[1:], then=[{"report": "m", "steps": 1, "steps_undone": 0}])


def test_a_plan_whose_driver_died_before_it_knew_the_id_is_found_by_its_tables():
    plan = {"source": [1, [0, 0, 0, 0]], "steps": [[2, [[1, 1]]], [2, [[3, 1]]]], "end": "rollback"}
    entries = [Entry(t, "m", False) for t in TABLES[1:]]
    lone = Noted.of([{"plan": plan}, {"refused": "the query has ended"}])
    assert _ended("m", TABLES[0], entries, lone, is_under_way=False) == "at the target"
    with pytest.raises(ValueError, match="never submitted"):
        _ended("m", TABLES[0], entries, Noted(), is_under_way=False)
