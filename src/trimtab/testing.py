"""Conformance suites and Hypothesis strategies, for our own parts and for yours (needs `trimtab[test]`).

A suite holds the promises of one interface. Inherit it in a test module, say how to make the thing, and add
only what is special about it:

    class TestMySampler(SamplerConformance):
        def make(self, space, start, seeds):
            return MySampler(space, seeds)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from trimtab.control.adapter import Adapter, Change, Refused, Unreachable, refuse_illegal
from trimtab.errors import InvariantError
from trimtab.job import JobState
from trimtab.knobs import Knob, Knobs, Space, Value
from trimtab.policies.catalog import find_policy
from trimtab.search.sampler import Sampler, Ticket
from trimtab.search.space import Axis, Point, Scale, SearchSpace
from trimtab.world import Seeds

_TEXTS: dict[str, Any] = {"trades": "nothing", "takes_effect": "immediate", "in_flight": "nothing"}


def by_name(space: Space, axes: tuple[Axis, ...]) -> SearchSpace:
    """Return a search space whose axes are the knobs of the same names."""

    def to_values(point: Point) -> dict[str, Value]:
        return dict(point)

    def to_point(knobs: Knobs) -> Point:
        return {axis.name: cast("int | float | str | bool", knobs[axis.name]) for axis in axes}

    return SearchSpace(axes, space, to_values, to_point, space.defaults)


def example_space() -> SearchSpace:
    """Return a small search space with every kind of axis and a knob that only counts while another is on."""

    def settle(values: dict[str, Value]) -> dict[str, Value]:
        return values if values["share"] else values | {"limit": 1.0}

    knobs = (
        Knob(name="queues", kind="int", default=2, low=1, high=5, **_TEXTS),
        Knob(name="quantum", kind="fraction", default=3600.0, low=60, high=100_000, **_TEXTS),
        Knob(name="order", kind="choice", default="fifo", choices=("fifo", "least", "small"), **_TEXTS),
        Knob(name="share", kind="bool", default=False, **_TEXTS),
        Knob(name="limit", kind="fraction", default=1.0, low=0.5, high=1.8, **_TEXTS),
    )
    axes = (
        Axis("queues", "int", 1, 5),
        Axis("quantum", "log", 60, 100_000),
        Axis("order", "choice", choices=("fifo", "least", "small")),
        Axis("share", "choice", choices=(False, True)),
        Axis("limit", "linear", 0.5, 1.8, steps=13),
    )
    return by_name(Space(knobs, settle), axes)


class SamplerConformance:
    """What every sampler promises."""

    def make(self, space: SearchSpace, start: Knobs, seeds: Seeds) -> Sampler:
        """Return a new sampler."""
        raise NotImplementedError

    @pytest.fixture
    def space(self) -> SearchSpace:
        return example_space()

    def new(self, space: SearchSpace, root: int = 7) -> Sampler:
        return self.make(space, space.base, Seeds(root))

    def test_points_name_every_axis_and_stay_on_it(self, space: SearchSpace) -> None:
        for ticket in _played(self.new(space), _worth):
            assert set(ticket.point) == {axis.name for axis in space.axes}
            for axis in space.axes:
                _check_on_axis(axis, ticket.point[axis.name])

    def test_suggestions_are_legal_after_projection(self, space: SearchSpace) -> None:
        for ticket in _played(self.new(space), _worth):
            knobs = space.knobs(ticket.point)
            assert space.space.project(knobs) == knobs
            assert space.space.parse({name: _text(value) for name, value in knobs.items()}) == knobs

    def test_tickets_are_distinct(self, space: SearchSpace) -> None:
        numbers = [ticket.id for ticket in _played(self.new(space), _worth)]
        assert numbers
        assert len(set(numbers)) == len(numbers)

    def test_same_seed_and_same_tells_give_the_same_asks(self, space: SearchSpace) -> None:
        assert _played(self.new(space), _worth) == _played(self.new(space), _worth)

    def test_another_seed_gives_other_asks(self, space: SearchSpace) -> None:
        assert _played(self.new(space, 7), _worth) != _played(self.new(space, 8), _worth)

    def test_the_order_within_a_batch_does_not_matter(self, space: SearchSpace) -> None:
        whole, reverse, single = self.new(space), self.new(space), self.new(space)
        for _ in range(20):
            batch = whole.ask()
            assert batch == reverse.ask() == single.ask()
            gains = {ticket.id: _worth(ticket) for ticket in batch}
            whole.tell(gains)
            reverse.tell(dict(reversed(gains.items())))
            for number in sorted(gains, reverse=True):
                single.tell({number: gains[number]})

    def test_a_rejected_ticket_stops_nothing(self, space: SearchSpace) -> None:
        def sometimes(ticket: Ticket) -> float | None:
            return (None, math.nan, math.inf, _worth(ticket))[ticket.id % 4]

        assert all(space.knobs(ticket.point) for ticket in _played(self.new(space), sometimes))

    def test_unknown_and_used_tickets_are_refused(self, space: SearchSpace) -> None:
        sampler = self.new(space)
        number = sampler.ask()[0].id
        with pytest.raises(InvariantError, match="ticket"):
            sampler.tell({number: 1.0, number + 1000: 1.0})
        sampler.tell({number: 1.0})
        with pytest.raises(InvariantError, match="ticket"):
            sampler.tell({number: 1.0})

    def test_a_space_without_axes_runs_out(self, space: SearchSpace) -> None:
        assert len(_played(self.new(by_name(space.space, ())), _worth)) <= 1


def _played(sampler: Sampler, worth: Callable[[Ticket], float | None], rounds: int = 30) -> list[Ticket]:
    found: list[Ticket] = []
    for _ in range(rounds):
        batch = sampler.ask()
        found += batch
        sampler.tell({ticket.id: worth(ticket) for ticket in batch})
    return found


def _worth(ticket: Ticket) -> float:
    """Return some gain that depends on the point alone."""
    return 1 + Seeds(0).stream(sorted(ticket.point.items())).random() / 2


def _check_on_axis(axis: Axis, value: Any) -> None:
    if (values := axis.values()) is not None:
        assert value in values
    else:
        assert axis.low <= value <= axis.high


def _text(value: Value) -> str:
    return Knobs({"": value}).text().removeprefix("=")


# Hypothesis strategies ------------------------------------------------------------------------------------


@st.composite
def knobs(draw: st.DrawFn, name: str = "knob") -> Knob:
    """Draw the declaration of one knob of any kind."""
    kind = draw(st.sampled_from(("int", "fraction", "choice", "bool", "list")))
    if kind == "bool":
        return Knob(name=name, kind="bool", default=draw(st.booleans()), **_TEXTS)
    if kind == "choice":
        choices = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True))
        default = draw(st.sampled_from(choices))
        return Knob(name=name, kind="choice", default=default, choices=tuple(choices), **_TEXTS)
    low = draw(st.integers(-1000, 1000))
    high = draw(st.one_of(st.integers(low, low + 5000), st.just(math.inf)))
    inside = st.integers(low, low + 5000 if math.isinf(high) else int(high))
    if kind == "list":
        items = tuple(sorted(draw(st.sets(inside, max_size=4))))
        return Knob(name=name, kind="list", default=items, low=low, high=high, **_TEXTS)
    if kind == "fraction":
        start = draw(st.one_of(inside.map(float), st.just(float(high))))
        return Knob(name=name, kind="fraction", default=start, low=low, high=high, **_TEXTS)
    return Knob(name=name, kind="int", default=draw(inside), low=low, high=high, **_TEXTS)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Draw a space of one to five knobs, some of them in order or inert while the first is at its default."""
    count = draw(st.integers(1, 5))
    declared = tuple(draw(knobs(f"knob{place}")) for place in range(count))
    whole = [knob for knob in declared if knob.kind == "int"]
    depends = draw(st.booleans())

    def settle(values: dict[str, Value]) -> dict[str, Value]:
        first, *others = declared
        if depends and values[first.name] == first.default:
            values = values | {knob.name: knob.default for knob in others}
        elif len(whole) > 1:
            one, two = whole[0], whole[1]
            larger = max(cast(int, values[one.name]), cast(int, values[two.name]))
            if larger <= two.high:
                values = values | {two.name: larger}
        return values

    return Space(declared, settle)


def raw(knob: Knob) -> st.SearchStrategy[Any]:
    """Draw a value of a knob's shape, legal or not."""
    number = st.one_of(st.floats(), st.integers(-(10**6), 10**6), st.integers(-(10**400), 10**400))
    shapes: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.one_of(st.booleans(), st.integers(0, 1)),
        "choice": st.sampled_from("abcdefg"),
        "list": st.lists(st.one_of(st.floats(), st.integers(-(10**4), 10**4)), max_size=5),
        "int": number,
        "fraction": st.one_of(st.floats(), st.integers(-(10**6), 10**6)),
    }
    return shapes[knob.kind]


def raw_values(space: Space) -> st.SearchStrategy[dict[str, Any]]:
    """Draw values for some of a space's knobs, legal or not."""
    return st.fixed_dictionaries({}, optional={knob.name: raw(knob) for knob in space.knobs})


@st.composite
def axes(draw: st.DrawFn, name: str = "axis") -> Axis:
    """Draw an axis of any scale, also one with a single value."""
    scale: Scale = draw(st.sampled_from(("int", "linear", "log", "choice")))
    if scale == "choice":
        values: list[bool | str] = draw(st.sampled_from(([False, True], ["a"], ["a", "b", "c"])))
        return Axis(name, "choice", choices=tuple(values))
    low = draw(st.integers(1, 1000))
    high = low + draw(st.integers(0, 5000))
    return Axis(name, scale, low, high, steps=0 if scale == "int" else draw(st.integers(0, 20)))


@st.composite
def search_spaces(draw: st.DrawFn) -> SearchSpace:
    """Draw a search space whose axes may reach beyond what its knobs allow."""
    space = draw(spaces())
    varied = [knob for knob in space.knobs if knob.kind != "list" and draw(st.booleans())]
    return by_name(space, tuple(_axis_of(draw, knob) for knob in varied))


def _axis_of(draw: st.DrawFn, knob: Knob) -> Axis:
    if knob.kind == "choice":
        return Axis(knob.name, "choice", choices=knob.choices)
    if knob.kind == "bool":
        return Axis(knob.name, "choice", choices=(False, True))
    low = int(knob.low) - draw(st.integers(0, 3))
    high = low + draw(st.integers(0, 30))
    if knob.kind == "int":
        return Axis(knob.name, "int", low, high)
    scale: Scale = "log" if low > 0 and draw(st.booleans()) else "linear"
    return Axis(knob.name, scale, low, high, steps=draw(st.sampled_from((0, 0, 1, 7))))


def units(count: int) -> st.SearchStrategy[list[float]]:
    """Draw places in the unit cube."""
    return st.lists(st.floats(0, 1), min_size=count, max_size=count)


# Adapters -------------------------------------------------------------------------------------------------


class AdapterConformance:
    """What every adapter promises, tried on a scheduler that has jobs; settings are written to it.

    A test may meet the scheduler as the one before left it, so `make` may return a new adapter each time or
    always the same one.
    """

    def make(self) -> Adapter:
        """Return an adapter to a scheduler that runs."""
        raise NotImplementedError

    def unreachable(self) -> Adapter:
        """Return an adapter to a scheduler that does not answer."""
        raise NotImplementedError

    def pass_time(self, adapter: Adapter) -> None:
        """Return when a setting that was written before has had time to come into force."""
        raise NotImplementedError

    def space(self, adapter: Adapter) -> Space:
        """Return the knobs of the policy that the scheduler is modelled by."""
        return find_policy(adapter.identity().policy).space

    @pytest.fixture
    def adapter(self) -> Adapter:
        return self.make()

    @pytest.fixture
    def writer(self, adapter: Adapter) -> Adapter:
        if not adapter.identity().writes:
            pytest.skip("this scheduler's settings cannot be changed")
        return adapter

    def change(self, adapter: Adapter, name: str) -> Change:
        """Return a change to another legal setting, with a key that was never used."""
        now = adapter.in_force()
        return Change(f"{name}-{now.version}", _another(self.space(adapter), now.knobs), now.version)

    def test_it_says_who_it_is(self, adapter: Adapter) -> None:
        identity = adapter.identity()
        assert identity.name
        assert identity.cluster.gpus > 0
        assert adapter.identity() == identity

    def test_what_is_in_force_is_legal_and_not_from_the_future(self, adapter: Adapter) -> None:
        in_force = adapter.in_force()
        refuse_illegal(self.space(adapter), in_force.knobs)
        assert in_force.as_of_ms <= adapter.now_ms()
        assert adapter.state().snapshot.now_ms <= adapter.now_ms()

    def test_who_cannot_write_refuses(self, adapter: Adapter) -> None:
        if adapter.identity().writes:
            return
        before = adapter.in_force()
        with pytest.raises(Refused):
            adapter.apply(self.change(adapter, "read-only"))
        assert _setting(adapter) == (before.knobs, before.version)

    def test_read_back_is_what_was_written_or_says_that_it_is_not_yet(self, writer: Adapter) -> None:
        before = writer.in_force()
        change = self.change(writer, "written")
        receipt = writer.apply(change)
        assert receipt.key == change.key
        assert receipt.version > before.version
        old, new = (before.knobs, before.version), (change.knobs, receipt.version)
        assert _setting(writer) in (old, new)
        self.pass_time(writer)
        assert _setting(writer) == new
        assert writer.state().snapshot.knobs == change.knobs

    def test_asked_twice_a_change_is_made_once(self, writer: Adapter) -> None:
        first = self.change(writer, "first")
        receipt = writer.apply(first)
        assert writer.apply(first) == receipt
        self.pass_time(writer)
        assert writer.apply(first) == receipt
        assert _setting(writer) == (first.knobs, receipt.version)
        second = self.change(writer, "second")
        later = writer.apply(second)
        self.pass_time(writer)
        assert writer.apply(first) == receipt
        self.pass_time(writer)
        assert _setting(writer) == (second.knobs, later.version)

    def test_a_key_stands_for_one_setting(self, writer: Adapter) -> None:
        change = self.change(writer, "key")
        before, receipt = writer.in_force(), writer.apply(change)
        with pytest.raises(Refused):
            writer.apply(Change(change.key, before.knobs, receipt.version))
        self.pass_time(writer)
        assert _setting(writer) == (change.knobs, receipt.version)

    def test_a_change_decided_on_another_version_is_refused(self, writer: Adapter) -> None:
        before, change = writer.in_force(), self.change(writer, "version")
        for expected in (before.version - 1, before.version + 1):
            with pytest.raises(Refused):
                writer.apply(Change(f"{change.key}-{expected}", change.knobs, expected))
        receipt = writer.apply(change)
        with pytest.raises(Refused):
            writer.apply(Change(f"{change.key}-late", before.knobs, before.version))
        self.pass_time(writer)
        assert _setting(writer) == (change.knobs, receipt.version)

    def test_an_illegal_setting_is_refused(self, writer: Adapter) -> None:
        before, space = writer.in_force(), self.space(writer)
        for place, knobs in enumerate(_illegal(space, before.knobs)):
            with pytest.raises(Refused):
                writer.apply(Change(f"illegal-{place}-{before.version}", knobs, before.version))
        self.pass_time(writer)
        assert _setting(writer) == (before.knobs, before.version)

    def test_events_can_be_asked_for_again_from_any_number(self, adapter: Adapter) -> None:
        events = list(adapter.events(0, 200))
        assert events, "the scheduler of this suite needs jobs"
        numbers = [event.number for event in events]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0
        for place in range(0, len(events) - 1, max(1, len(events) // 20)):
            following = events[place + 1 : place + 8]
            assert list(adapter.events(numbers[place], len(following))) == following
        assert list(adapter.events(0, 1)) == events[:1]

    def test_events_tell_a_job_from_its_submission_on(self, adapter: Adapter) -> None:
        submitted: set[str] = set()
        for event in adapter.events(0, 1000):
            assert (event.facts is not None) == (event.kind == "submit")
            assert event.ran_ms is None or event.kind == "finish"
            if event.facts is not None:
                assert event.facts.label == event.label
                submitted.add(event.label)
            assert event.label in submitted
        assert submitted

    def test_a_state_is_one_of_this_cluster(self, adapter: Adapter) -> None:
        cluster, state = adapter.identity().cluster, adapter.state()
        jobs = state.snapshot.jobs
        assert len(set(state.labels)) == len(state.labels) == len(jobs)
        assert [job.id for job in jobs] == sorted({job.id for job in jobs})
        held: dict[tuple[int, int], int] = {}
        for label, job in zip(state.labels, jobs, strict=True):
            assert job.facts.label == label
            assert cluster.home(job.facts.vc) == job.home
            assert job.facts.submit_ms <= state.snapshot.now_ms
            assert sum(gpus for _, gpus in job.nodes) == (
                job.facts.gpus if job.state is JobState.RUNNING else 0
            )
            if job.partner is None or job.partner > job.id:  # two that share GPUs count once
                for node, gpus in job.nodes:
                    held[job.home, node] = held.get((job.home, node), 0) + gpus
        for (home, node), gpus in held.items():
            assert 0 <= node < cluster.vcs[home].nodes
            assert gpus <= cluster.vcs[home].gpus_per_node

    def test_a_state_holds_the_jobs_that_events_tell_of(self, adapter: Adapter) -> None:
        before, _ = _told(adapter)
        labels = set(adapter.state().labels)
        submitted, ended = _told(adapter)
        assert labels <= submitted
        assert before - ended <= labels

    def test_who_does_not_answer_is_unreachable(self) -> None:
        adapter = self.unreachable()
        change = Change("nowhere", Knobs({}), 1)
        calls: list[Callable[[], object]] = [
            *(adapter.identity, adapter.now_ms, adapter.in_force, adapter.state),
            *(lambda: adapter.events(0, 1), lambda: adapter.apply(change)),
        ]
        for call in calls:
            with pytest.raises(Unreachable):
                call()


def _setting(adapter: Adapter) -> tuple[Knobs, int]:
    in_force = adapter.in_force()
    return in_force.knobs, in_force.version


def _told(adapter: Adapter) -> tuple[set[str], set[str]]:
    """Return the jobs that events tell were submitted, and those they tell have ended."""
    submitted, ended, last = set[str](), set[str](), 0
    while found := adapter.events(last, 1000):
        last = max(event.number for event in found)
        submitted |= {event.label for event in found if event.kind == "submit"}
        ended |= {event.label for event in found if event.kind in ("finish", "cancel")}
    return submitted, ended


def _values(knob: Knob) -> list[Value]:
    """Return some legal values of a knob."""
    if knob.kind in ("choice", "bool"):
        return [*knob.choices] if knob.kind == "choice" else [False, True]
    top = knob.high if math.isfinite(knob.high) else 4 * max(1.0, knob.low)
    ends = [knob.project((end,) if knob.kind == "list" else end) for end in (knob.low, top)]
    return [*ends, knob.default]


def _another(space: Space, knobs: Knobs) -> Knobs:
    """Return a legal setting that differs from one."""
    for knob in space.knobs:
        for value in _values(knob):
            found = space.project({**knobs, knob.name: value})
            if found != knobs:
                return found
    raise AssertionError("this space holds a single setting: nothing can be tuned")


def _illegal(space: Space, knobs: Knobs) -> list[Knobs]:
    """Return settings that break a rule: unknown, missing, beyond a bound, of no choice."""
    first = space.knobs[0]
    found = [
        Knobs({**knobs, "no-such-knob": 1}),
        Knobs({name: value for name, value in knobs.items() if name != first.name}),
    ]
    for knob in space.knobs:
        if knob.kind == "choice":
            found.append(Knobs({**knobs, knob.name: "no-such-choice"}))
        elif knob.kind in ("int", "fraction"):
            below = knob.low - 1
            found.append(Knobs({**knobs, knob.name: int(below) if knob.kind == "int" else float(below)}))
    return found
