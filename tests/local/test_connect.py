"""A query of Spark Connect on a server that has the jar and the settings."""

from pathlib import Path

import binshift
from binshift.session import CHANGELOG_KEY, PROVIDER, PROVIDER_KEY
from local.programs import printed

CLIENT = Path(__file__).with_name("connected.py")


def test_a_query_of_a_connect_client_is_rescaled_through_its_checkpoint(tmp_path, jvm_jar):
    settings = {
        PROVIDER_KEY: PROVIDER,
        CHANGELOG_KEY: "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.binshift.requests.interval": "200ms",
    }
    options = [f"--conf={key}={value}" for key, value in settings.items()]
    out = printed(CLIENT.read_text(), tmp_path, "--jars", str(binshift.jar_path()), *options, timeout=180)
    assert out.splitlines()[-1] == "partitions: 2, 5"
