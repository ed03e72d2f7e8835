"""The dashboard while its service is away for a moment, and pages that stay open: nothing is said that is not so any more."""

from __future__ import annotations

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.ui.browser import Tab
from tests.ui.conftest import NewTab
from tests.ui.stage import OWNER_READER, UiStage

pytestmark = pytest.mark.slow  # a stage of its own, and the pages' own pauses are waited for

AWAY = {
    "type": "about:blank",
    "title": "Away",
    "status": 503,
    "code": "unavailable",
    "detail": "It is away for a moment.",
}
COMPLAINT = "error: Failed to load resource"


@pytest.fixture
def troubled(tab: NewTab) -> Any:
    """A tab; what the browser itself says of refused requests is forgotten in the end."""
    one = tab()
    yield one
    one.complaints[:] = [text for text in one.complaints if not text.startswith(COMPLAINT)]


def refuse(one: Tab, pattern: Any) -> None:
    """From now on, until `unroute`."""
    one.page.route(
        pattern, lambda route: route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(AWAY))
    )


def test_a_list_that_cannot_be_read_is_not_an_empty_queue_and_emulated_stays_said(troubled: Tab) -> None:
    page = troubled.open()
    page.get_by_role("table", name=re.compile("Every session")).get_by_text("visits").first.wait_for()
    page.locator(".emulated").wait_for()
    lists = re.compile(r"/v1/sessions\?")
    refuse(troubled, lists)
    page.get_by_text(AWAY["detail"]).first.wait_for()
    page.wait_for_timeout(500)
    queue = page.locator("section", has=page.get_by_role("heading", name="Queue"))
    assert "Nothing is queued" not in queue.inner_text()
    assert page.locator(".emulated").count() == 1
    page.unroute(lists)
    queue.get_by_text("absent (approval)").wait_for()


def test_what_could_not_be_read_when_a_session_ended_is_read_again(troubled: Tab, stage: UiStage) -> None:
    session = stage.submit(name="ended in an outage")
    page = troubled.open(f"#/sessions/{session}/tour")
    page.locator(".heading .badge", has_text="AWAITING_APPROVAL").wait_for()
    views = re.compile(rf"/v1/(visits/\w+|sessions/{session}(/visits.*)?)$")
    refuse(troubled, views)
    stage.approve(session)
    stage.completed(session)
    page.locator('.live[data-state="ended"]').wait_for()
    page.wait_for_timeout(1000)  # the last event's own try has failed
    page.unroute(views)
    page.locator(".heading .badge", has_text="COMPLETED").wait_for(timeout=20_000)
    page.locator(".chart .span.train").first.wait_for(timeout=20_000)  # known by durations of visits read whole


def test_a_stream_that_nobody_answers_is_not_called_live(tab: NewTab, stage: UiStage) -> None:
    one = tab()
    one.page.route("**/events*", lambda route: None)
    page = one.open(f"#/sessions/{stage.sessions['done']}/tour")
    page.locator("g.visit").first.wait_for()
    assert page.locator(".live").inner_text() == "connecting"


class Hushed:
    """A way to a service on which, once it is `silent`, nothing comes any more, and nobody is told: as where a network fails."""

    def __init__(self, url: str) -> None:
        self._to, self._at = urlsplit(url), socket.create_server(("127.0.0.1", 0))
        self.url, self.silent = f"http://127.0.0.1:{self._at.getsockname()[1]}", threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                pair = self._at.accept()[0], socket.create_connection((self._to.hostname, self._to.port))
                for way in (pair, pair[::-1]):
                    threading.Thread(target=self._pump, args=way, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.silent.is_set():
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._at.close()


def test_a_network_that_falls_silent_is_not_called_live(tab: NewTab, stage: UiStage) -> None:
    network = Hushed(stage.orchestrator.url)
    one, first = tab(network.url), tab(network.url)
    for each in (one, first):
        each.page.clock.install()
    page, listed = one.open(f"#/sessions/{stage.sessions['waiting']}/tour"), first.open()
    page.locator('.live[data-state="live"]').wait_for()
    listed.get_by_role("table", name=re.compile("Every session")).get_by_text("visits").first.wait_for()
    network.silent.set()
    page.clock.fast_forward(16_000)
    page.get_by_text("connection lost: asking again").wait_for(timeout=20_000)
    listed.clock.fast_forward(4_000)
    listed.wait_for_timeout(500)
    listed.clock.fast_forward(31_000)
    listed.get_by_text("The service does not answer, or not to the end.").first.wait_for(timeout=20_000)
    for each in (one, first):
        each.close()
    network.close()


def test_an_answer_that_breaks_off_is_no_reason_to_ask_for_the_token(tab: NewTab) -> None:
    one = tab()
    one.page.route(
        "**/v1/whoami", lambda route: route.fulfill(status=200, content_type="application/json", body='{"na')
    )
    page = one.open()
    page.get_by_text("no-answer").wait_for()
    assert page.get_by_label("Bearer token").count() == 0
    one.page.unroute("**/v1/whoami")
    page.get_by_text("reading as owner").wait_for(timeout=20_000)


def test_a_page_that_is_refused_does_not_say_that_it_asks_again(troubled: Tab, stage: UiStage) -> None:
    refused = {"status": 401, "code": "token-unknown", "detail": "Nobody has this token."}
    answers = [(200, "text/event-stream", ": alive\n\n"), (401, "application/problem+json", json.dumps(refused))]

    def answer(route: Any) -> None:
        status, kind, body = answers.pop(0)
        route.fulfill(status=status, content_type=kind, body=body)

    troubled.page.route("**/events*", answer)
    page = troubled.open(f"#/sessions/{stage.sessions['waiting']}/tour")
    page.get_by_text(refused["detail"]).wait_for(timeout=20_000)
    assert page.locator(".live").inner_text() == "refused: open the page again"


def test_a_page_that_is_loaded_while_the_service_is_away_keeps_its_token_and_asks_again(troubled: Tab) -> None:
    who = re.compile("/v1/whoami")
    refuse(troubled, who)
    page = troubled.open()
    page.get_by_text(AWAY["detail"]).wait_for()
    assert page.get_by_label("Bearer token").count() == 0
    page.unroute(who)
    page.get_by_text("reading as owner").wait_for(timeout=20_000)
    assert page.evaluate("sessionStorage.getItem('gput-token')") == OWNER_READER


def test_an_address_that_is_no_encoding_is_no_reason_to_ask_for_the_token(tab: NewTab) -> None:
    page = tab().open("#/nowhere/%")
    page.get_by_role("heading", name="Queue").wait_for()
    assert page.get_by_label("Bearer token").count() == 0


def test_for_whom_a_session_waits_is_read_again_though_no_event_tells_of_it(tab: NewTab, stage: UiStage) -> None:
    session, awaited = stage.sessions["waiting"], ["head of holder city", "harbour"]
    one = tab()

    def answer(route: Any) -> None:
        view = route.fetch()
        route.fulfill(response=view, json=view.json() | {"waiting_for": awaited})

    one.page.route(re.compile(f"/v1/sessions/{session}$"), answer)
    page = one.open(f"#/sessions/{session}/tour")
    page.get_by_text("Waits for head of holder city, harbour.", exact=True).wait_for()
    page.locator('.live[data-state="live"]').wait_for()
    page.wait_for_timeout(1000)  # the facts that were told from the beginning brought their own reading
    awaited[:] = ["head of holder harbour"]
    page.get_by_text("Waits for head of holder harbour.", exact=True).wait_for(timeout=20_000)


def test_after_a_restart_page_and_list_say_for_whom_it_waits(troubled: Tab, tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="restarted under a reader", rounds=1000)
    page, first = troubled.open(f"#/sessions/{session}/tour"), (listed := tab()).open()
    trust = (proven := tab()).open(f"#/sessions/{session}/trust")
    stage.approve(session)
    stage.call(stage.world.until(session, lambda view: view["visits_closed"]))
    row = first.locator("section", has=first.get_by_role("heading", name="Queue")).get_by_role("row", name=session[:10])
    row.get_by_text("nobody").wait_for()
    trust.get_by_role("heading", name="The machine of north").wait_for(timeout=30_000)
    stage.call(stage.world["holder-harbour"].kill())
    try:
        stage.call(stage.world["orchestrator"].restart())
        page.get_by_text("Waits for head of holder harbour.", exact=True).wait_for(timeout=30_000)
        row.get_by_text("head of holder harbour").wait_for(timeout=30_000)
    finally:
        stage.call(stage.world["holder-harbour"].start())
    page.get_by_text(re.compile("^Waits for head of holder")).wait_for(state="detached", timeout=30_000)
    trust.get_by_text(re.compile("earlier results?$")).wait_for(timeout=30_000)  # those of the life before
    stage.call(stage.world.owner.act(session, "cancel"))
    page.locator(".heading .badge", has_text="CANCELLED").wait_for()
    for one in (listed, proven):
        one.complaints[:] = [text for text in one.complaints if not text.startswith(COMPLAINT)]


LONG = """async () => {
  const { Training } = await import("/ui/training.js");
  const losses = Array.from({ length: 300000 }, (_, step) => [step, { visit: "v", holder: "city", step, loss: 2 + Math.sin(step) }]);
  const chart = new Training(new AbortController().signal);
  chart.update({ view: { visits_closed: 1, holders: [] }, visits: new Map(), losses: new Map(losses) });
  return chart.element.querySelector("table tbody").textContent;
}"""


def test_three_hundred_thousand_losses_are_drawn_and_summed_up(tab: NewTab) -> None:
    page = tab().open()
    page.get_by_role("heading", name="Queue").wait_for()
    assert page.evaluate(LONG).endswith("1299999")  # the lowest, and the last step


def test_artifacts_and_approvals_follow_the_session(tab: NewTab, stage: UiStage) -> None:
    session = stage.submit(name="watched from its beginning")
    artifacts, contract = (tab().open(f"#/sessions/{session}/{name}") for name in ("artifacts", "contract"))
    artifacts.get_by_text("not finished").wait_for()
    row = contract.get_by_role("table", name=re.compile("What each holder said")).get_by_role("row", name="city")
    row.get_by_text("nothing yet").wait_for()
    stage.approve(session)
    row.get_by_text("approve").wait_for(timeout=30_000)
    stage.completed(session)
    artifacts.get_by_text("ready", exact=True).wait_for(timeout=30_000)


def test_the_list_goes_on_under_a_readers_hands_and_they_stay_where_they_are(tab: NewTab, stage: UiStage) -> None:
    page = tab().open()
    link = page.locator(f'section:has(h2:text-is("Sessions")) a[href*="{stage.sessions["done"]}"]')
    link.focus()
    page.get_by_role("table", name=re.compile("Every session")).evaluate("one => one.dataset.kept = 'yes'")
    page.wait_for_timeout(4000)
    assert page.locator("table[data-kept]").count() == 1, "nothing changed, and nothing is drawn anew"
    stage.submit_waiting("came while somebody read")
    page.get_by_role("link", name="came while somebody read").first.wait_for(timeout=20_000)
    assert link.evaluate("one => one === document.activeElement")


def test_evidence_that_could_not_be_read_is_read_again_though_the_session_has_ended(
    troubled: Tab, stage: UiStage
) -> None:
    results = re.compile("/attestations")
    refuse(troubled, results)
    page = troubled.open(f"#/sessions/{stage.sessions['done']}/trust")
    page.get_by_text(AWAY["detail"]).first.wait_for()
    page.locator('.live[data-state="ended"]').wait_for()
    page.wait_for_timeout(500)
    page.unroute(results)
    page.get_by_role("heading", name="The machine of city").wait_for(timeout=20_000)


def test_evidence_grows_older_on_a_page_that_stays_open(tab: NewTab, stage: UiStage) -> None:
    one = tab()
    one.page.clock.install()
    page = one.open(f"#/sessions/{stage.sessions['done']}/trust")
    machine = page.locator("section.result", has=page.get_by_role("heading", name="The machine of city"))
    machine.get_by_text(re.compile(r" ago$")).wait_for()
    assert not machine.get_by_text(re.compile("^5 h ")).count()
    page.clock.fast_forward("05:00:00")
    machine.get_by_text(re.compile("^5 h .* ago$")).wait_for(timeout=20_000)
