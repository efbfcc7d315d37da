"""What requests to S3 cost, by counts of few partitions."""

import pytest

from s3prices import KINDS, Line, Request, by_kind, dollars, extra, per_hour


def counts(**some):
    return {k: some.get(k, 0) for k in KINDS}


@pytest.mark.parametrize(
    ("asked", "kind", "about"),
    [
        (("PUT", "/states/a/offsets/.7.0e1f.tmp"), "PUT", "offsets"),
        (("GET", "/states", "list-type=2&delimiter=%2F&prefix=a%2Fstate%2F0%2F3%2F"), "LIST", "state"),
        (("GET", "/states", "list-type=2&prefix=a/binshift/requests/"), "LIST", "binshift/requests"),
        (("GET", "/states/a/state/0/3/12.changelog"), "GET", "state/N.changelog"),
        (("HEAD", "/states/a/state/0/3/.12.changelog.0e1f-7.tmp"), "HEAD", "state/N.changelog"),
        (("DELETE", "/states/a/state/0/3/12_0e1f-7.zip"), "DELETE", "state/N.zip"),
        (("GET", "/states/a/state/0/3/12.zip.crc"), "GET", "state/N.zip.crc"),
        (("PUT", "/states/a/state/0/3/SSTs/00012-7.sst"), "PUT", "state/SSTs"),
        (("GET", "/states/a/state/0/_metadata/metadata"), "GET", "state/_metadata"),
        (("POST", "/states/", "delete"), "POST", ""),
        (("PUT", "/states/a/binshift/routing/5-ab"), "PUT", "binshift/routing"),
        (
            ("PUT", "/states/a/binshift/.served.json.29a8f3c6-ffd0-4947-8694-465a16ac355d.tmp"),
            "PUT",
            "binshift/served.json",
        ),
    ],
)
def test_a_request_is_of_the_kind_that_s3_bills(asked, kind, about):
    assert Request.of(*asked) == Request("a" if about else "", kind, about)


def test_a_put_with_a_source_is_a_copy():
    assert Request.of("PUT", "/states/a/commits/7", has_source=True) == Request("a", "COPY", "commits")


def test_a_line_through_two_numbers_of_partitions_tells_the_requests_of_any_other():
    line = Line.through((4, counts(PUT=10, GET=3)), (8, counts(PUT=18, GET=3)))
    assert line.at(4) == counts(PUT=10, GET=3)
    assert line.at(200) == counts(PUT=402, GET=3)


def test_an_hour_has_the_requests_of_its_epochs_and_those_by_the_clock():
    assert per_hour(counts(PUT=2), 10, {"LIST": 720}) == counts(PUT=720, LIST=720)


def test_what_is_extra_is_what_idle_epochs_with_as_many_partitions_do_not_make():
    line = Line(counts(PUT=1), counts(PUT=2))
    assert extra(counts(PUT=40, COPY=5), line, [4, 8, 8]) == counts(PUT=40 - 9 - 17 - 17, COPY=5)


def test_requests_are_priced_by_the_thousand_and_deleting_is_free():
    requests = {("PUT", "a"): 1000, ("LIST", "a"): 600, ("LIST", "b"): 400}
    cheap = {("GET", "a"): 500, ("HEAD", "a"): 500, ("DELETE", "a"): 9000}
    assert dollars(by_kind(requests | cheap)) == pytest.approx(0.005 + 0.005 + 0.0004)
