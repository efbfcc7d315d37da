"""A minute of quick lives, other ones each day; `tests/lives/run.py` goes on for as long as one likes."""

import time

import pytest

import lives.life
from lives.life import Cancel, Change, Epochs, Fault, Life, Lose, Restart, TakeOver
from lives.oracle import Oracles
from lives.play import WrongError, play
from lives.shrink import shrunk

SECONDS = 60.0


@pytest.mark.timeout(600)
def test_the_lives_of_today_come_out_as_on_sparks_own_provider(spark, tmp_path):
    day = int(time.time() // 86400)
    oracles = Oracles(spark, tmp_path / "oracles")
    deadline = time.monotonic() + SECONDS
    index = 0
    while index == 0 or time.monotonic() < deadline:
        life = Life.of(f"{day}-{index}")
        try:
            play(spark, life, tmp_path / f"life-{index}", oracles, deadline)
        except WrongError as error:
            pytest.fail(f"life {day}-{index} came out wrong: {error}\n{life!r}")
        index += 1


def test_if_no_older_snapshot_can_replace_one_the_failure_says_why_it_could_not_be_read(spark, tmp_path):
    """What comes before a takeover can't be read instead, so the task fails, and is tried again."""
    few = Change("few", "Batched", prepare=False, chance=927)
    more = Change(6, "AllAtOnce", prepare=False, chance=938, epochs=2)
    unreadable = Fault("checkpoint.read", "throw")
    events = (Epochs(4), TakeOver(), Epochs(1), unreadable, few, more, Epochs(1), Lose())
    life = Life("dedup-within-watermark", 4, 40, ("format-2",), events)
    # Another failure than the one on purpose would count as wrong.
    counts = play(spark, life, tmp_path / "life", Oracles(spark, tmp_path / "oracles"))
    assert counts["epochs"] >= life.epochs
    assert counts["changes"] == 2


def test_a_life_that_comes_out_wrong_is_made_as_short_as_it_can_be():
    needed = Restart(loses=True, again=1)
    life = Life(
        "count",
        2,
        300,
        ("format-2", "checksums"),
        (
            Epochs(1),
            Change(4, "Fluid", prepare=True),
            Epochs(2),
            needed,
            Lose(),
            Fault("rows.ask", "slow"),
            Cancel(),
        ),
    )

    def is_wrong(other):
        return needed in other.events and "format-2" in other.settings

    assert shrunk(life, is_wrong, seconds=60) == Life("count", 2, 20, ("format-2",), (needed,))


def test_a_life_follows_from_its_seed_and_prints_as_what_makes_it():
    life = Life.of("7-31")
    assert life == Life.of("7-31") != Life.of("7-32")
    assert eval(repr(life), vars(lives.life)) == life  # That is what a person copies into a test.
