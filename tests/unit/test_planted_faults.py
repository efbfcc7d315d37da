"""The planted faults fit the sources that they change."""

from mutants.run import faults


def test_each_planted_fault_has_one_place_in_the_sources_and_a_name_of_its_own():
    planted = faults()
    assert len(planted) >= 40
    assert len({fault.name for fault in planted}) == len(planted)
    for fault in planted:
        assert fault.changed() != fault.path.read_text()
        assert fault.why
