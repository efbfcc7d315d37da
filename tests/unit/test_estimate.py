"""What `binshift plan --estimate` says, compared with runs of the benchmarks."""

import json

import pytest
from click.testing import CliRunner

from binshift.cli.main import cli
from binshift.planning.estimate import Executors, estimates

#: Seconds from the request to the last step, by millions of keys and steps: keycount on two busy cores, with
#: epochs of 2 s.
MEASURED = {(1, 1): 20.0, (1, 2): 32.2, (10, 1): 46.2, (10, 2): 58.2, (16, 1): 64.2, (16, 2): 76.3}
#: Bytes of a row before compression.
ROW = 33


def estimated(*options):
    done = CliRunner().invoke(cli, ["plan", "--estimate", *options])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(("millions", "steps"), MEASURED)
def test_a_prepared_rescale_takes_as_long_as_it_was_measured_to_take(millions, steps):
    where = Executors(state=millions * 1e6 * ROW, n=1, network=1.25e9, epoch_s=2)
    rescale = estimates(where, steps=steps)[0]
    assert rescale.busy_s == pytest.approx(MEASURED[millions, steps], rel=0.05)
    assert rescale.free_s < rescale.busy_s


def test_what_is_copied_is_shared_out_among_executors_and_no_faster_than_their_network():
    def rescale(n, network):
        return estimates(Executors(state=1e12, n=n, network=network, epoch_s=1), steps=1)[0]

    few, many = rescale(10, 1e9), rescale(100, 1e9)
    assert few.moved == many.moved == 5e11
    assert (few.busy_s - 8.5) == pytest.approx(10 * (many.busy_s - 8.5))
    assert rescale(10, 1e6).free_s - 8.5 == pytest.approx(5e11 / 10 / 1e6)


def test_it_needs_no_checkpoint_and_says_what_may_happen():
    text = estimated("--state", "5TB", "--executors", "200", "--network", "10Gbit")
    assert [line.split("  ")[0] for line in text.splitlines()[1:]] == [
        "rescale",
        "rescale, not prepared",
        "drain",
        "loss of an executor",
        "loss, with a standby",
    ]
    assert "2.5 TB" in text
    assert "25 GB" in text


def test_programs_get_bytes_and_seconds():
    lines = estimated("--state", "1GB", "--executors", "2", "--epoch", "1", "--json").splitlines()
    assert json.loads(lines[0])["moved"] == 5e8
    assert json.loads(lines[-1]) == {
        "what": "loss, with a standby",
        "moved": 0,
        "free_s": 2.1,
        "busy_s": 2.1,
        "adds_s": 1.1,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name the checkpoint"),
        (("--estimate", "--state", "5TB"), "needs --state, such as 5TB, and --executors"),
        (("--estimate", "--state", "much", "--executors", "2"), "'much' is no amount; write it like 10GB"),
        (("--estimate", "--state", "5TB", "--executors", "0"), "0 is not in the range"),
        (("--estimate", "--network", "10GB"), "'10GB' is no amount; write it like 10Gbit"),
    ],
)
def test_what_is_missing_or_no_amount_is_said(options, said):
    done = CliRunner().invoke(cli, ["plan", *options])
    assert done.exit_code == 2
    assert said in done.output
