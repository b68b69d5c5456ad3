"""Hosts of one class are those that every request treats alike."""

from hypothesis import given
from hypothesis import strategies as st

from placement.model.host_classes import host_classes
from tests.unit.controller.rounds.test_rounds import a_host, a_request

NUMBERS = st.lists(st.integers(0, 7), max_size=4).map(tuple)


@st.composite
def hosts_and_requests(draw):
    hosts = [
        a_host(
            number,
            accepts=draw(st.booleans()),
            labels=draw(st.sampled_from([(), ("ssd",), ("ssd", "zone=a")])),
        )
        for number in range(6)  # requests know two more, which are gone
    ]
    requests = []
    for number in range(draw(st.integers(0, 5))):
        named, avoided = draw(NUMBERS | st.none()), draw(NUMBERS)
        hosts_named = None if named is None else tuple(a_host(each).name for each in named)
        requests.append(
            a_request(number, hosts=hosts_named, avoid=tuple(a_host(each).id for each in avoided))
        )
    return hosts, requests


def treatment(host, requests):
    named = [each.hosts is not None and host.name in each.hosts for each in requests]
    return host.accepts, host.labels, named, [host.id in each.avoid for each in requests]


@given(case=hosts_and_requests())
def test_hosts_are_of_one_class_if_and_only_if_every_request_treats_them_alike(case):
    hosts, requests = case

    found = host_classes(hosts, requests)

    seen = []
    for host, number in zip(hosts, found.of_host.tolist(), strict=True):
        how = treatment(host, requests)
        if how not in seen:
            seen.append(how)
            assert hosts[found.example[number]] is host
        assert number == seen.index(how)
    assert len(found.example) == len(seen)
