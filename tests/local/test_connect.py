"""A query of Spark Connect, where the client's process is the server, too."""

from pathlib import Path

import pytest

from local.programs import printed

CLIENT = Path(__file__).with_name("connected.py")


@pytest.mark.long
def test_a_query_is_rescaled_through_its_checkpoint_and_by_its_controller(tmp_path, jvm_jar):
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.binshift.requests.interval": "200ms",
    }
    options = [f"--conf={key}={value}" for key, value in settings.items()]
    out = printed(CLIENT.read_text(), tmp_path, *options, timeout=180)
    assert out.splitlines()[-1] == "partitions: [2, 3, 5]"
