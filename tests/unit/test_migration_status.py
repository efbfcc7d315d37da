"""The status of a migration while its bins are copied."""

from binshift.migration import forecast_message


def test_only_copying_that_takes_a_while_or_too_much_room_is_worth_a_word() -> None:
    assert forecast_message(None) == ""
    assert forecast_message({"bytes": 1000, "seconds": 1}) == ""
    long = forecast_message({"bytes": 26_000_000_000, "seconds": 3241, "too_much": None})
    assert long == "copying 26.0 GB takes about 55 min, and less where tasks do not notice it"
    assert forecast_message({"bytes": 1, "seconds": 0, "too_much": "no room"}) == "no room"
